//! The reference page, rendered from the OpenAPI document.

use crate::error::Code;
use askama::Template;
use serde_json::Value;

#[derive(Template)]
#[template(path = "docs.html")]
struct Reference {
    version: String,
    description: Vec<ReferenceText>,
    groups: Vec<Group>,
    shapes: Vec<Shape>,
    codes: &'static [Code],
}

struct Group {
    name: String,
    calls: Vec<Call>,
}

struct Call {
    id: String,
    method: String,
    path: String,
    summary: String,
    description: ReferenceText,
    scope: String,
    parameters: Vec<Field>,
    body: Option<String>,
    answers: Vec<CallAnswer>,
}

struct CallAnswer {
    status: String,
    description: ReferenceText,
    shape: Option<String>,
}

/// Text with inline code. It escapes itself, so the page inserts it unchanged.
#[derive(Template)]
#[template(path = "words.html")]
struct ReferenceText {
    pieces: Vec<Piece>,
}

/// A run of text, inline code, or an error code that links to its page.
enum Piece {
    Text(String),
    Code(String),
    Error(String),
}

struct Shape {
    name: String,
    description: String,
    fields: Vec<Field>,
}

struct Field {
    name: String,
    kind: String,
    required: bool,
    description: String,
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn shape_name(reference: &Value) -> Option<String> {
    reference["$ref"].as_str().and_then(|path| path.rsplit('/').next()).map(str::to_owned)
}

fn kind(schema: &Value) -> String {
    if let Some(name) = shape_name(schema) {
        return name;
    }
    if let Some(options) = schema["oneOf"].as_array() {
        let kinds: Vec<String> = options.iter().map(kind).filter(|kind| kind != "null").collect();
        return kinds.join(" or ");
    }
    let base = match &schema["type"] {
        Value::Array(kinds) => {
            let kinds = kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null");
            kinds.collect::<Vec<_>>().join(" or ")
        }
        Value::String(kind) if kind == "array" => format!("list of {}", self::kind(&schema["items"])),
        Value::String(kind) => kind.clone(),
        _ => "any".into(),
    };
    let range = match (schema["minimum"].as_u64(), schema["maximum"].as_u64()) {
        (Some(least), Some(most)) => format!(" {least} to {most}"),
        _ => String::new(),
    };
    let format = if schema["format"] == "date-time" { " (RFC 3339)" } else { "" };
    format!("{base}{range}{format}")
}

fn words(description: &str) -> ReferenceText {
    let parts = description.split('`').enumerate();
    let piece = |(at, part): (usize, &str)| match at % 2 {
        0 => Piece::Text(part.into()),
        _ if Code::ALL.iter().any(|code| code.as_str() == part) => Piece::Error(part.into()),
        _ => Piece::Code(part.into()),
    };
    ReferenceText { pieces: parts.filter(|(_, part)| !part.is_empty()).map(piece).collect() }
}

fn call(path: &str, method: &str, operation: &Value) -> Call {
    let scope = operation["security"][0].as_object().and_then(|scheme| scheme.keys().next().cloned());
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let answers = operation["responses"].as_object().into_iter().flatten();
    let json = |holder: &Value| {
        let of = |kind: &str| shape_name(&holder["content"][kind]["schema"]);
        of("application/json").or_else(|| of("application/problem+json"))
    };
    Call {
        id: text(operation, "operationId"),
        method: method.to_uppercase(),
        path: path.into(),
        summary: text(operation, "summary"),
        description: words(&text(operation, "description")),
        scope: scope.unwrap_or_else(|| "public".into()),
        parameters: parameters
            .map(|parameter| Field {
                name: text(parameter, "name"),
                kind: text(parameter, "in"),
                required: parameter["required"].as_bool().unwrap_or(false),
                description: text(parameter, "description"),
            })
            .collect(),
        body: json(&operation["requestBody"]),
        answers: answers
            .map(|(status, answer)| CallAnswer {
                status: status.clone(),
                description: words(&text(answer, "description")),
                shape: json(answer),
            })
            .collect(),
    }
}

fn shape(name: &str, schema: &Value) -> Shape {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let fields = schema["properties"].as_object().into_iter().flatten();
    Shape {
        name: name.into(),
        description: text(schema, "description"),
        fields: fields
            .map(|(field, schema)| Field {
                name: field.clone(),
                kind: kind(schema),
                required: required.contains(&field.as_str()),
                description: text(schema, "description"),
            })
            .collect(),
    }
}

/// Renders the page of an OpenAPI document.
pub(super) fn render(document: &str) -> askama::Result<String> {
    let document: Value = serde_json::from_str(document).unwrap_or_default();
    let mut groups: Vec<Group> = Vec::new();
    for (path, methods) in document["paths"].as_object().into_iter().flatten() {
        for method in ["put", "patch", "get", "post", "delete"] {
            let operation = &methods[method];
            if operation.is_null() {
                continue;
            }
            let name = operation["tags"][0].as_str().unwrap_or_default();
            let call = call(path, method, operation);
            match groups.iter_mut().find(|group| group.name == name) {
                Some(group) => group.calls.push(call),
                None => groups.push(Group { name: name.into(), calls: vec![call] }),
            }
        }
    }
    groups.sort_by_key(|group| group.name == "Operations");
    let shapes = document["components"]["schemas"].as_object().into_iter().flatten();
    let page = Reference {
        version: text(&document["info"], "version"),
        description: text(&document["info"], "description").split("\n\n").map(words).collect(),
        groups,
        shapes: shapes.map(|(name, schema)| shape(name, schema)).collect(),
        codes: Code::ALL,
    };
    page.render()
}
