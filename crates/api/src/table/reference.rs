//! A document as one page without scripts: operations by their subject, then schemas. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

/// The style of the pages: the console's colours, and nothing that is loaded.
pub(super) const STYLE: &str = include_str!("reference.css");

/// The texts around a document, and the address of its JSON.
pub(super) struct Frame {
    pub(super) title: &'static str,
    pub(super) json: &'static str,
    /// Where this page is, among `TABS`.
    pub(super) here: &'static str,
}

/// The pages and their names.
pub(super) const TABS: [(&str, &str); 2] =
    [("/platform/reference", "Own interface"), ("/platform/reference/stock", "Released contract")];

/// An operation of a document.
struct Operation<'d> {
    method: &'d str,
    path: &'d str,
    said: &'d Value,
}

/// Writes a document as a page.
pub(super) fn page(frame: &Frame, document: &Value) -> String {
    let subjects = subjects(document);
    let schemas = document["components"]["schemas"].as_object();
    let mut page = head(frame);
    page.push_str("<div class=frame><nav class=rail aria-label=Subjects><ul>");
    for (subject, operations) in &subjects {
        let (name, count) = (escaped(subject), operations.len());
        push(
            &mut page,
            format_args!("<li><a href=\"#{name}\">{name} <span>{count}</span></a></li>"),
        );
    }
    let count = schemas.map_or(0, serde_json::Map::len);
    push(
        &mut page,
        format_args!("<li><a href=\"#schemas\">Schemas <span>{count}</span></a></li></ul></nav>"),
    );
    push(
        &mut page,
        format_args!(
            "<main><h1>{}</h1><p class=lead>{}</p><p><a href=\"{}\">OpenAPI 3.1 document (JSON)</a></p>",
            frame.title,
            prose(document["info"]["description"].as_str().unwrap_or_default()),
            frame.json
        ),
    );
    for (subject, operations) in &subjects {
        let name = escaped(subject);
        push(&mut page, format_args!("<section><h2 id=\"{name}\">{name}</h2>"));
        operations.iter().for_each(|operation| write_operation(&mut page, operation));
        page.push_str("</section>");
    }
    page.push_str("<section><h2 id=schemas>Schemas</h2>");
    for (name, schema) in schemas.into_iter().flatten() {
        write_schema(&mut page, name, schema);
    }
    page.push_str("</section></main></div>");
    page
}

fn head(frame: &Frame) -> String {
    let tabs: String = TABS
        .iter()
        .map(|(path, name)| {
            let current = if *path == frame.here { " aria-current=page" } else { "" };
            format!("<a href=\"{path}\"{current}>{name}</a>")
        })
        .collect();
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width,initial-scale=1\">\
         <title>{} · OpenCode Cloud</title><style>{STYLE}</style>\
         <header class=top><b>OpenCode Cloud</b><nav aria-label=Documents>{tabs}</nav></header>",
        frame.title
    )
}

fn subjects(document: &Value) -> BTreeMap<&str, Vec<Operation<'_>>> {
    let mut subjects: BTreeMap<&str, Vec<Operation<'_>>> = BTreeMap::new();
    for (path, methods) in document["paths"].as_object().into_iter().flatten() {
        for (method, said) in methods.as_object().into_iter().flatten() {
            let subject = said["tags"][0].as_str().unwrap_or_default();
            subjects.entry(subject).or_default().push(Operation { method, path, said });
        }
    }
    subjects
}

fn write_operation(page: &mut String, operation: &Operation<'_>) {
    let Operation { method, path, said } = operation;
    let state = said["x-state"].as_str();
    let chip = state.or_else(|| said["x-scope"].as_str()).unwrap_or("no key");
    push(
        page,
        format_args!(
            "<details class=card><summary><span class=\"method {method}\">{}</span><code>{}</code>\
             <span class=\"chip {}\">{}</span><p>{}</p></summary><div class=inside>",
            method.to_ascii_uppercase(),
            escaped(path),
            state.map(escaped).unwrap_or_default(),
            escaped(chip),
            prose(said["summary"].as_str().unwrap_or_default())
        ),
    );
    let parameters = said["parameters"].as_array().filter(|all| !all.is_empty());
    if let Some(parameters) = parameters {
        page.push_str("<h3>Parameters</h3><ul class=props>");
        for parameter in parameters {
            let place = parameter["in"].as_str().unwrap_or_default();
            let name = parameter["name"].as_str().unwrap_or_default();
            let is_required = parameter["required"] == true;
            let described = [&parameter["description"], &parameter["schema"]["description"]];
            let text = described.into_iter().find_map(Value::as_str).unwrap_or_default();
            let text = format!("{text} ({place})");
            write_member(page, name, &parameter["schema"], is_required, text.trim_start());
        }
        page.push_str("</ul>");
    }
    for (media, content) in said["requestBody"]["content"].as_object().into_iter().flatten() {
        push(page, format_args!("<h3>Body <code>{}</code></h3>", escaped(media)));
        write_shape(page, &content["schema"]);
    }
    page.push_str("<h3>Answers</h3><ul class=props>");
    for (status, answer) in said["responses"].as_object().into_iter().flatten() {
        let good = if status.starts_with('2') { " good" } else { "" };
        push(page, format_args!("<li><span class=\"status{good}\">{status}</span>"));
        for (media, content) in answer["content"].as_object().into_iter().flatten() {
            let kind = kind(&content["schema"]);
            let media = if media == "application/json" { "" } else { media };
            push(page, format_args!("<span class=type>{kind} {}</span>", escaped(media)));
        }
        let text = prose(answer["description"].as_str().unwrap_or_default());
        push(page, format_args!("<p>{text}</p></li>"));
    }
    page.push_str("</ul></div></details>");
}

fn write_schema(page: &mut String, name: &str, schema: &Value) {
    let name = escaped(name);
    push(page, format_args!("<div class=\"card schema\" id=\"schema-{name}\"><h4>{name}</h4>"));
    write_about(page, schema);
    write_shape(page, schema);
    page.push_str("</div>");
}

fn write_about(page: &mut String, schema: &Value) {
    if let Some(text) = schema["description"].as_str() {
        push(page, format_args!("<p>{}</p>", prose(text)));
    }
}

/// Writes the members of an object, the choices of a union, or the name of anything else.
fn write_shape(page: &mut String, schema: &Value) {
    if let Some(choices) = choices(schema).filter(|all| all.iter().any(has_members)) {
        if has_members(schema) {
            write_members(page, schema);
        }
        page.push_str("<ul class=props>");
        for choice in choices {
            page.push_str("<li>");
            write_about(page, choice);
            write_shape(page, choice);
            page.push_str("</li>");
        }
        page.push_str("</ul>");
        return;
    }
    let items = &schema["items"];
    let members = if has_members(items) { items } else { schema };
    if !has_members(members) || has_members(items) {
        push(page, format_args!("<span class=type>{}</span>", kind(schema)));
    }
    if has_members(members) {
        write_members(page, members);
    }
}

fn write_members(page: &mut String, schema: &Value) {
    let required = schema["required"].as_array();
    page.push_str("<ul class=props>");
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        let is_required = required.is_some_and(|all| all.iter().any(|known| known == name));
        let text = member["description"].as_str().unwrap_or_default();
        write_member(page, name, member, is_required, text);
    }
    page.push_str("</ul>");
}

fn write_member(page: &mut String, name: &str, schema: &Value, is_required: bool, text: &str) {
    let must = if is_required { "<span class=must>required</span>" } else { "" };
    push(
        page,
        format_args!(
            "<li><code class=name>{}</code><span class=type>{}{}</span>{must}",
            escaped(name),
            kind(schema),
            bounds(schema)
        ),
    );
    if !text.is_empty() {
        push(page, format_args!("<p>{}</p>", prose(text)));
    }
    let inner = if has_members(&schema["items"]) { &schema["items"] } else { schema };
    if has_members(inner) {
        write_members(page, inner);
    }
    page.push_str("</li>");
}

fn has_members(schema: &Value) -> bool {
    schema["properties"].as_object().is_some_and(|all| !all.is_empty())
}

fn choices(schema: &Value) -> Option<&Vec<Value>> {
    ["oneOf", "anyOf"].into_iter().find_map(|word| schema[word].as_array())
}

/// Returns the kind of a value in a few words, with links to named schemas.
fn kind(schema: &Value) -> String {
    if let Some(path) = schema["$ref"].as_str() {
        let name = escaped(path.rsplit('/').next().unwrap_or_default());
        return format!("<a href=\"#schema-{name}\">{name}</a>");
    }
    if let Some(value) = schema.get("const") {
        return escaped(&value.to_string());
    }
    if let Some(values) = schema["enum"].as_array() {
        return joined(values.iter().map(|value| escaped(&value.to_string())), " | ");
    }
    if let Some(choices) = choices(schema) {
        return joined(choices.iter().map(kind), " | ");
    }
    if let Some(parts) = schema["allOf"].as_array() {
        return joined(parts.iter().map(kind), " &amp; ");
    }
    match &schema["type"] {
        Value::String(name) => of_type(name, schema),
        Value::Array(names) => {
            joined(names.iter().filter_map(Value::as_str).map(|name| of_type(name, schema)), " | ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => "any".to_owned(),
    }
}

fn of_type(name: &str, schema: &Value) -> String {
    match name {
        "array" => {
            let items = kind(&schema["items"]);
            if items.contains(" | ") { format!("({items})[]") } else { format!("{items}[]") }
        }
        "object" if schema["additionalProperties"].is_object() => {
            format!("map of {}", kind(&schema["additionalProperties"]))
        }
        other => escaped(other),
    }
}

/// Joins alternatives, each once.
fn joined(all: impl Iterator<Item = String>, between: &str) -> String {
    let mut kept: Vec<String> = Vec::new();
    for one in all {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    kept.join(between)
}

/// Returns the bounds of a value in words.
fn bounds(schema: &Value) -> String {
    let mut text = String::new();
    for (word, said) in
        [("minimum", "≥"), ("maximum", "≤"), ("maxLength", "length ≤"), ("default", "default")]
    {
        if let Some(value) = schema.get(word).filter(|value| !value.is_null()) {
            push(&mut text, format_args!(", {said} {}", escaped(&value.to_string())));
        }
    }
    text
}

fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("a text grows");
}

/// Returns a text as HTML, with `<code>` for what is between two backticks. A backtick without another one stays.
fn prose(text: &str) -> String {
    let escaped = escaped(text);
    let backticks = escaped.matches('`').count();
    let mut html = String::new();
    for (place, piece) in escaped.split('`').enumerate() {
        match place % 2 == 1 {
            true if place < backticks => push(&mut html, format_args!("<code>{piece}</code>")),
            true => push(&mut html, format_args!("`{piece}")),
            false => html.push_str(piece),
        }
    }
    html
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_are_words_with_links() {
        for (schema, words) in [
            (json!({ "type": "string" }), "string"),
            (json!({ "type": ["integer", "null"] }), "integer | null"),
            (json!({ "const": "<b>" }), "&quot;&lt;b&gt;&quot;"),
            (json!({ "$ref": "#/components/schemas/Id" }), "<a href=\"#schema-Id\">Id</a>"),
            (
                json!({ "type": "array", "items": { "enum": ["a", "b"] } }),
                "(&quot;a&quot; | &quot;b&quot;)[]",
            ),
            (
                json!({ "type": "object", "additionalProperties": { "type": "number" } }),
                "map of number",
            ),
            (json!(true), "any"),
        ] {
            assert_eq!(kind(&schema), words, "{schema}");
        }
    }

    #[test]
    fn text_between_backticks_is_code() {
        for (text, html) in [
            ("plain", "plain"),
            ("`a` and `b`.", "<code>a</code> and <code>b</code>."),
            ("`<b>` & \"c\"", "<code>&lt;b&gt;</code> &amp; &quot;c&quot;"),
            ("one ` alone", "one ` alone"),
            ("`a` and ` alone", "<code>a</code> and ` alone"),
        ] {
            assert_eq!(prose(text), html);
        }
    }

    #[test]
    fn a_union_shows_what_all_have_and_each_choice() {
        let schema = json!({
            "properties": { "seq": { "type": "integer" } },
            "oneOf": [{ "description": "It `began`.", "properties": { "type": { "const": "begun" } } }],
        });
        let mut page = String::new();
        write_shape(&mut page, &schema);
        for shown in ["seq", "It <code>began</code>.", "&quot;begun&quot;"] {
            assert!(page.contains(shown), "{shown}: {page}");
        }
    }

    #[test]
    fn nested_members_and_bounds_are_shown() {
        let schema = json!({
            "type": "object",
            "required": ["list"],
            "properties": {
                "list": { "type": "array", "items": { "type": "object", "properties": { "deep": { "type": "string" } } } },
                "limit": { "type": "integer", "minimum": 1, "maximum": 9, "description": "a < b" },
            },
        });
        let mut page = String::new();
        write_shape(&mut page, &schema);
        assert!(page.contains("deep") && page.contains("required"), "{page}");
        assert!(page.contains(", ≥ 1, ≤ 9") && page.contains("a &lt; b"), "{page}");
    }
}
