//! What the real transforms answered when they were asked: the part of `main.rs` that needs no JVM.

mod cases;
#[allow(dead_code)] // the random ones are of the present
mod events;
mod exchange;
mod random;
mod shapes;

use serde_json::Value as Json;

#[test]
fn transforms_do_what_the_real_classes_did() {
    compare(&cases::recorded(), include_str!("recorded.jsonl"));
}

#[test]
fn transforms_of_geometries_and_vectors_do_what_the_real_classes_did() {
    compare(&shapes::all(), include_str!("recorded_shapes.jsonl"));
}

fn compare(cases: &[Json], recorded: &str) {
    let answers: Vec<&str> = recorded.lines().collect();
    assert_eq!(
        answers.len(),
        cases.len(),
        "the cases have changed: record them anew, as main.rs tells"
    );
    let mut wrong = Vec::new();
    for (case, theirs) in cases.iter().zip(answers) {
        let theirs: Json = serde_json::from_str(theirs).expect("an answer");
        let ours = exchange::changes(case, &exchange::answer(case));
        if ours != theirs {
            let chain = &case["transforms"];
            wrong.push(format!("{chain}\n  real {theirs}\n  ours {ours}"));
        }
    }
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n"));
}
