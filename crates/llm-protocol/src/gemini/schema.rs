//! Reduces tool schemas to the subset of OpenAPI that Gemini accepts
//! (<https://ai.google.dev/api/caching#Schema>). It refuses a schema with anything else in it, so other
//! keywords are left out or expressed differently.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json::RawJson;
use crate::text::Text;

/// The most nodes of one converted schema. References can make a small schema endless.
const MAX_NODES: usize = 2000;
/// The most levels of one converted schema.
const MAX_DEPTH: usize = 32;

/// A schema in Gemini's form.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Schema {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    nullable: bool,
    #[serde(rename = "enum", skip_serializing_if = "Vec::is_empty")]
    choices: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<Box<Schema>>,
    #[serde(skip_serializing_if = "Properties::is_empty")]
    properties: Properties,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    required: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    any_of: Vec<Schema>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_items: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_items: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    minimum: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    maximum: Option<RawJson>,
}

/// Properties in the tool's order, which the model sees.
#[derive(Clone, Debug, Default, PartialEq)]
struct Properties(Vec<(String, Schema)>);

impl Properties {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }
}

impl Serialize for Properties {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, schema) in &self.0 {
            map.serialize_entry(name, schema)?;
        }
        map.end()
    }
}

/// The members of an object, in order.
#[derive(Default)]
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Text(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

impl<'a> Members<'a> {
    fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    fn read<T: Deserialize<'a>>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }
}

/// Returns the parameters of a function with this JSON Schema; `None` if it has none.
pub(super) fn parameters(schema: &RawJson) -> Option<Schema> {
    let root: Members<'_> = serde_json::from_str(schema.get()).unwrap_or_default();
    let definitions = ["$defs", "definitions"]
        .into_iter()
        .filter_map(|name| Some((name, root.read::<Members<'_>>(name)?)));
    let mut converter = Converter {
        definitions: definitions.collect(),
        open: Vec::new(),
        left: MAX_NODES,
        depth: 0,
    };
    let mut schema = converter.node(schema.get());
    keep_known(&mut schema);
    (!schema.properties.is_empty() || !schema.any_of.is_empty()).then_some(schema)
}

struct Converter<'a> {
    definitions: Vec<(&'static str, Members<'a>)>,
    /// References that are being resolved.
    open: Vec<String>,
    left: usize,
    depth: usize,
}

impl<'a> Converter<'a> {
    fn node(&mut self, raw: &'a str) -> Schema {
        if self.left == 0 || self.depth == MAX_DEPTH {
            return object();
        }
        self.left -= 1;
        self.depth += 1;
        let schema = self.inner(raw);
        self.depth -= 1;
        schema
    }

    fn inner(&mut self, raw: &'a str) -> Schema {
        let members: Members<'a> = match serde_json::from_str(raw) {
            Ok(members) => members,
            Err(_) => return Schema::default(), // `true`: any value
        };
        let mut schema = self.reference(&members);
        schema.title = members.read("title").or(schema.title);
        schema.description = members.read("description").or(schema.description);
        schema.nullable |= members.read("nullable") == Some(true);
        let number = |name: &str| members.get(name).filter(|raw| is_number(raw)).map(RawJson::from);
        schema.min_items = number("minItems").or(schema.min_items);
        schema.max_items = number("maxItems").or(schema.max_items);
        schema.minimum = number("minimum").or(schema.minimum);
        schema.maximum = number("maximum").or(schema.maximum);
        self.object_and_array(&members, &mut schema);
        self.combine(&members, &mut schema);
        choose(&members, &mut schema);
        kind(&members, &mut schema);
        schema.format = members
            .read("format")
            .or(schema.format.take())
            .filter(|format: &String| is_format(&schema, format));
        tidy(schema)
    }

    /// Resolves `$ref`. A schema that contains itself becomes a plain object one level down.
    fn reference(&mut self, members: &Members<'a>) -> Schema {
        let Some(name) = members.read::<String>("$ref") else { return Schema::default() };
        let found = self.definitions.iter().find_map(|(place, definitions)| {
            let name = name.strip_prefix("#/")?.strip_prefix(place)?.strip_prefix('/')?;
            definitions.get(name)
        });
        let Some(found) = found.filter(|_| !self.open.contains(&name)) else { return object() };
        self.open.push(name);
        let schema = self.node(found.get());
        self.open.pop();
        schema
    }

    fn object_and_array(&mut self, members: &Members<'a>, schema: &mut Schema) {
        let properties: Members<'a> = members.read("properties").unwrap_or_default();
        for (name, raw) in properties.0 {
            let property = self.node(raw.get());
            schema.properties.0.push((name.into_owned(), property));
        }
        schema.required.extend(members.read::<Vec<String>>("required").unwrap_or_default());
        if let Some(raw) = members.get("items") {
            schema.items = Some(Box::new(self.node(raw.get())));
        }
    }

    fn combine(&mut self, members: &Members<'a>, schema: &mut Schema) {
        for raw in members.read::<Vec<&'a RawValue>>("allOf").unwrap_or_default() {
            let part = self.node(raw.get());
            merge(schema, part);
        }
        for name in ["anyOf", "oneOf"] {
            let choices: Vec<&'a RawValue> = members.read(name).unwrap_or_default();
            for raw in choices {
                let is_null = |members: Members<'_>| {
                    members.read::<String>("type").as_deref() == Some("null")
                };
                if serde_json::from_str(raw.get()).is_ok_and(is_null) {
                    schema.nullable = true;
                } else {
                    let choice = self.node(raw.get());
                    schema.any_of.push(choice);
                }
            }
        }
        if schema.any_of.len() == 1 {
            let only = schema.any_of.remove(0);
            merge(schema, only);
        }
    }
}

fn object() -> Schema {
    Schema { kind: Some("object".to_owned()), ..Schema::default() }
}

fn is_number(raw: &RawValue) -> bool {
    raw.get().starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

fn merge(schema: &mut Schema, part: Schema) {
    schema.kind = schema.kind.take().or(part.kind);
    schema.format = schema.format.take().or(part.format);
    schema.title = schema.title.take().or(part.title);
    schema.description = schema.description.take().or(part.description);
    schema.nullable |= part.nullable;
    schema.choices.extend(part.choices);
    schema.items = schema.items.take().or(part.items);
    for (name, property) in part.properties.0 {
        if !schema.properties.has(&name) {
            schema.properties.0.push((name, property));
        }
    }
    schema.required.extend(part.required);
    schema.any_of.extend(part.any_of);
    schema.min_items = schema.min_items.take().or(part.min_items);
    schema.max_items = schema.max_items.take().or(part.max_items);
    schema.minimum = schema.minimum.take().or(part.minimum);
    schema.maximum = schema.maximum.take().or(part.maximum);
}

/// Adds the choices, which must be non-empty strings.
fn choose(members: &Members<'_>, schema: &mut Schema) {
    let mut choices: Vec<&RawValue> = members.read("enum").unwrap_or_default();
    choices.extend(members.get("const"));
    for choice in choices {
        match serde_json::from_str::<String>(choice.get()) {
            Ok(text) if text.is_empty() => {}
            Ok(text) => schema.choices.push(text),
            Err(_) if choice.get() == "null" => schema.nullable = true,
            Err(_) => schema.choices.push(choice.get().to_owned()),
        }
    }
}

/// Sets one type, or a choice of several. Null is not a type but a flag.
fn kind(members: &Members<'_>, schema: &mut Schema) {
    let several: Option<Vec<String>> = members.read("type");
    let mut kinds =
        several.or_else(|| members.read("type").map(|kind| vec![kind])).unwrap_or_default();
    let count = kinds.len();
    kinds.retain(|kind| kind != "null");
    schema.nullable |= kinds.len() < count;
    if kinds.len() > 1 && schema.choices.is_empty() && schema.any_of.is_empty() {
        for kind in kinds {
            let mut choice = Schema { kind: Some(kind), ..Schema::default() };
            match choice.kind.as_deref() {
                Some("array") => choice.items = schema.items.take(),
                Some("object") => {
                    choice.properties = std::mem::take(&mut schema.properties);
                    choice.required = std::mem::take(&mut schema.required);
                }
                Some(_) | None => {}
            }
            schema.any_of.push(tidy(choice));
        }
        return;
    }
    schema.kind = kinds.into_iter().next().or(schema.kind.take());
}

/// Returns whether Gemini accepts the format.
fn is_format(schema: &Schema, format: &str) -> bool {
    match schema.kind.as_deref() {
        Some("string") => matches!(format, "enum" | "date-time"),
        Some("integer") => matches!(format, "int32" | "int64"),
        Some("number") => matches!(format, "float" | "double"),
        Some(_) | None => false,
    }
}

/// Drops required names that are not properties, and duplicates.
fn keep_known(schema: &mut Schema) {
    let mut known: Vec<&str> = schema.properties.0.iter().map(|(name, _)| name.as_str()).collect();
    schema.required.retain(|name| {
        let at = known.iter().position(|known| known == name);
        at.map(|at| known.swap_remove(at)).is_some()
    });
    schema.properties.0.iter_mut().for_each(|(_, property)| keep_known(property));
    schema.items.iter_mut().for_each(|items| keep_known(items));
    schema.any_of.iter_mut().for_each(keep_known);
}

/// Adds and removes fields until the schema is valid for its type.
fn tidy(mut schema: Schema) -> Schema {
    if !schema.choices.is_empty() {
        schema.kind = Some("string".to_owned());
        (schema.minimum, schema.maximum) = (None, None);
    }
    if schema.kind.is_none() && !schema.properties.is_empty() {
        schema.kind = Some("object".to_owned());
    }
    if schema.kind.is_none() && schema.items.is_some() {
        schema.kind = Some("array".to_owned());
    }
    match schema.kind.as_deref() {
        Some("object") | None => schema.items = None,
        Some("array") => {
            schema.properties = Properties::default();
            let text = || Schema { kind: Some("string".to_owned()), ..Schema::default() };
            let items = schema.items.take().filter(|items| **items != Schema::default());
            schema.items = Some(items.unwrap_or_else(|| Box::new(text())));
        }
        Some(_) => {
            schema.properties = Properties::default();
            schema.items = None;
        }
    }
    if !schema.properties.is_empty() {
        schema.any_of.clear(); // usually lists which properties are required together
    } else if !schema.any_of.is_empty() {
        schema.kind = None; // nothing else is accepted beside a choice
        schema.choices.clear();
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn convert(schema: &Value) -> Value {
        let schema = RawJson::parse(schema.to_string()).unwrap();
        serde_json::to_value(parameters(&schema)).unwrap()
    }

    /// Converts a schema as the only property of a function.
    fn property(schema: &Value) -> Value {
        let root = json!({"type": "object", "properties": {"p": schema}});
        convert(&root)["properties"]["p"].take()
    }

    #[test]
    fn what_gemini_has_no_words_for_is_left_out() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
            "additionalProperties": false, "required": ["a", "gone", "a"],
            "properties": {"a": {
                "type": "array", "description": "d", "uniqueItems": true, "minItems": 1,
                "items": {"type": "object", "additionalProperties": {"type": "string"}, "properties": {
                    "s": {"type": "string", "pattern": "^x", "format": "uri", "default": "x", "minLength": 2},
                    "n": {"type": "number", "minimum": 0.5, "exclusiveMaximum": 3},
                    "t": {"type": "string", "format": "date-time"}
                }}
            }}
        });
        assert_eq!(
            convert(&schema),
            json!({"type": "object", "required": ["a"], "properties": {"a": {
                "type": "array", "description": "d", "minItems": 1,
                "items": {"type": "object", "properties": {
                    "s": {"type": "string"}, "n": {"type": "number", "minimum": 0.5},
                    "t": {"type": "string", "format": "date-time"}
                }}
            }}})
        );
    }

    #[test]
    fn a_function_without_properties_has_no_parameters() {
        assert_eq!(convert(&json!({"type": "object", "properties": {}})), Value::Null);
        assert_eq!(convert(&json!({"type": "object", "additionalProperties": true})), Value::Null);
        assert_eq!(convert(&json!(true)), Value::Null);
        assert_eq!(property(&json!({"type": "object"})), json!({"type": "object"}));
    }

    #[test]
    fn properties_keep_their_order_and_numbers_their_bytes() {
        let text = r#"{"properties":{"z":{"type":"integer","minimum":1.0},"a":{"type":"string"}}}"#;
        let schema = parameters(&RawJson::parse(text).unwrap());
        assert_eq!(
            serde_json::to_string(&schema).unwrap(),
            r#"{"type":"object","properties":{"z":{"type":"integer","minimum":1.0},"a":{"type":"string"}}}"#
        );
    }

    #[test]
    fn choices_are_strings_and_null_is_a_property() {
        let cases = [
            (json!({"type": ["string", "null"]}), json!({"type": "string", "nullable": true})),
            (
                json!({"type": ["string", "integer"]}),
                json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
            ),
            (
                json!({"type": "integer", "enum": [1, 2], "minimum": 1}),
                json!({"type": "string", "enum": ["1", "2"]}),
            ),
            (
                json!({"enum": ["a", "", null]}),
                json!({"type": "string", "nullable": true, "enum": ["a"]}),
            ),
            (json!({"const": "x"}), json!({"type": "string", "enum": ["x"]})),
            (
                json!({"anyOf": [{"type": "string"}, {"type": "null"}], "description": "d"}),
                json!({"type": "string", "description": "d", "nullable": true}),
            ),
            (
                json!({"type": "string", "oneOf": [{"type": "string"}, {"type": "number"}]}),
                json!({"anyOf": [{"type": "string"}, {"type": "number"}]}),
            ),
            (json!({"type": "array"}), json!({"type": "array", "items": {"type": "string"}})),
            (
                json!({"type": "array", "items": {}}),
                json!({"type": "array", "items": {"type": "string"}}),
            ),
            (
                json!({"type": "string", "properties": {"a": {}}, "required": ["a"]}),
                json!({"type": "string"}),
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}, {"required": []}]}),
                json!({"type": "object", "properties": {"a": {"type": "string"}}}),
            ),
            (
                json!({"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"required": ["a"]}]}),
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
            ),
        ];
        for (schema, expected) in cases {
            assert_eq!(property(&schema), expected, "{schema}");
        }
    }

    #[test]
    fn references_are_put_in_and_end_where_they_repeat() {
        let schema = json!({
            "type": "object",
            "properties": {
                "tree": {"$ref": "#/$defs/Tree", "description": "the root"},
                "lost": {"$ref": "#/elsewhere"}
            },
            "$defs": {"Tree": {"type": "object", "properties": {
                "name": {"type": "string"}, "left": {"$ref": "#/$defs/Tree"}
            }}}
        });
        assert_eq!(
            convert(&schema),
            json!({"type": "object", "properties": {
                "tree": {"type": "object", "description": "the root", "properties": {
                    "name": {"type": "string"}, "left": {"type": "object"}
                }},
                "lost": {"type": "object"}
            }})
        );
    }

    #[test]
    fn a_schema_that_would_be_endless_is_bounded() {
        let mut definitions = serde_json::Map::new();
        for at in 0..40 {
            let next = format!("#/$defs/d{}", at + 1);
            let both =
                json!({"type": "object", "properties": {"a": {"$ref": next}, "b": {"$ref": next}}});
            definitions.insert(format!("d{at}"), both);
        }
        let schema = json!({"properties": {"p": {"$ref": "#/$defs/d0"}}, "$defs": definitions});
        assert!(convert(&schema).to_string().len() < 200 * MAX_NODES);
        let deep = format!("{}{{}}{}", r#"{"items":"#.repeat(100_000), "}".repeat(100_000));
        let text = format!(r#"{{"properties":{{"p":{deep}}}}}"#);
        let schema = parameters(&RawJson::parse(text).unwrap());
        assert!(serde_json::to_string(&schema).unwrap().len() < 200 * MAX_DEPTH);
    }
}
