//! The option in which users write a log-in module.

use walferry_config::Jaas;

use super::Translation;

pub(super) const JAAS: &str = "sasl.jaas.config";
pub(super) const MECHANISM: &str = "sasl.mechanism";

/// Parses the login module, and reports what is wrong with it.
pub(super) fn jaas(t: &mut Translation, module: &str) -> Option<Jaas> {
    match Jaas::parse(t.get_filled(JAAS)?) {
        Ok(jaas) if jaas.module == module => Some(jaas),
        Ok(jaas) => {
            // What stands in the place of the class may be anything.
            let message = match jaas.module.ends_with("LoginModule") {
                true => format!("contains {}, which does not match sasl.mechanism", jaas.module),
                false => "contains a class that does not match sasl.mechanism".to_owned(),
            };
            t.problem(JAAS, message)
                .hint(format!("the matching module is {module}"));
            None
        }
        Err(error) => {
            t.problem(JAAS, error.to_string()).hint(format!(
                "write … {module} required username=\"…\" password=\"…\"; with the semicolon"
            ));
            None
        }
    }
}
