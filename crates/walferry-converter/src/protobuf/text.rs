//! The text of a Protobuf file, as Confluent's registry client prints it. Its spaces are part of what a registry compares.

use super::derive::{Field, File, Message};
use crate::json::push_text;

/// The text of a file.
pub(super) fn of(file: &File) -> String {
    let Some(message) = &file.message else {
        return WRAPPERS.to_owned();
    };
    let mut out = String::from("syntax = \"proto3\";\n");
    if let Some(package) = &file.package {
        out.push_str(&format!("package {package};\n"));
    }
    if !file.imports.is_empty() {
        out.push('\n');
        for import in &file.imports {
            out.push_str(&format!("import \"{import}\";\n"));
        }
    }
    out.push('\n');
    out + &message_text(message)
}

fn message_text(message: &Message) -> String {
    let mut out = format!("message {} {{", message.name);
    if !message.fields.is_empty() {
        out.push('\n');
        for field in &message.fields {
            push_indented(&mut out, &field_text(field));
        }
    }
    if !message.messages.is_empty() {
        out.push('\n');
        for nested in &message.messages {
            push_indented(&mut out, &message_text(nested));
        }
    }
    out + "}\n"
}

fn field_text(field: &Field) -> String {
    let mut out = String::new();
    if let Some(label) = field.label {
        out.push_str(label);
        out.push(' ');
    }
    out.push_str(&format!("{} {} = {}", field.kind, field.name, field.number));
    if !field.parameters.is_empty() {
        out.push_str(" [(confluent.field_meta) = {\n  params: [\n");
        for (index, (name, value)) in field.parameters.iter().enumerate() {
            let (mut name_text, mut value_text) = (String::from("key: "), String::from("value: "));
            push_text(&mut name_text, name);
            push_text(&mut value_text, value);
            // Those of decimals are older, and stand as they did then.
            let [first, second] = match *name {
                "precision" | "scale" => [value_text, name_text],
                _ => [name_text, value_text],
            };
            let comma = if index + 1 < field.parameters.len() { "," } else { "" };
            out.push_str(&format!("    {{\n      {first},\n      {second}\n    }}{comma}\n"));
        }
        out.push_str("  ]\n}]");
    }
    out + ";\n"
}

/// Appends lines, each two spaces further to the right; empty ones, too.
fn push_indented(out: &mut String, text: &str) {
    for line in text.lines() {
        out.push_str("  ");
        out.push_str(line);
        out.push('\n');
    }
}

/// What is registered for a value that is no struct: Google's file of wrappers.
const WRAPPERS: &str = r#"syntax = "proto3";
package google.protobuf;

option java_package = "com.google.protobuf";
option java_outer_classname = "WrappersProto";
option java_multiple_files = true;
option go_package = "google.golang.org/protobuf/types/known/wrapperspb";
option cc_enable_arenas = true;
option objc_class_prefix = "GPB";
option csharp_namespace = "Google.Protobuf.WellKnownTypes";

message DoubleValue {
  double value = 1 [json_name = "value"];
}
message FloatValue {
  float value = 1 [json_name = "value"];
}
message Int64Value {
  int64 value = 1 [json_name = "value"];
}
message UInt64Value {
  uint64 value = 1 [json_name = "value"];
}
message Int32Value {
  int32 value = 1 [json_name = "value"];
}
message UInt32Value {
  uint32 value = 1 [json_name = "value"];
}
message BoolValue {
  bool value = 1 [json_name = "value"];
}
message StringValue {
  string value = 1 [json_name = "value"];
}
message BytesValue {
  bytes value = 1 [json_name = "value"];
}
"#;
