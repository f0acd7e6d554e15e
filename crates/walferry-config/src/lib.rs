//! Every property once: name, type, default, text, validation.
