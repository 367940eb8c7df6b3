//! Spans as a request of OTLP in protobuf.

use prost::Message;

use crate::genai::{ERROR, SCHEMA_URL};
use crate::proto::{
    Any, AnyValue, ExportTraceServiceRequest, InstrumentationScope, KeyValue, Link, ResourceSpans,
    ScopeSpans, Span as ProtoSpan, SpanKind, Status, StatusCode,
};
use crate::{Kind, Span, Value};

/// The process that spans come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource {
    /// The role, such as `worker`.
    pub role: &'static str,
    /// The build's version.
    pub version: &'static str,
}

/// Returns the body of a request to a collector's `/v1/traces`.
#[must_use]
pub fn encode(spans: Vec<Span>, resource: Resource) -> Vec<u8> {
    let attributes = [
        ("service.name", format!("opencode-cloud-{}", resource.role)),
        ("service.version", resource.version.to_owned()),
    ];
    let attributes = attributes.map(|(name, value)| attribute(name, value.into())).to_vec();
    let scope = InstrumentationScope {
        name: "opencode-cloud".to_owned(),
        version: resource.version.to_owned(),
    };
    let scope_spans = ScopeSpans {
        scope: Some(scope),
        spans: spans.into_iter().map(proto).collect(),
        schema_url: SCHEMA_URL.to_owned(),
    };
    let resource = crate::proto::Resource { attributes };
    let resource_spans = ResourceSpans {
        resource: Some(resource),
        scope_spans: vec![scope_spans],
        schema_url: SCHEMA_URL.to_owned(),
    };
    ExportTraceServiceRequest { resource_spans: vec![resource_spans] }.encode_to_vec()
}

fn proto(span: Span) -> ProtoSpan {
    let nanos = |ms: i64| u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000);
    let trace_id = span.trace.0.to_vec();
    let link = |id: crate::SpanId| Link { trace_id: trace_id.clone(), span_id: id.0.to_vec() };
    let mut attributes: Vec<_> =
        span.attributes.into_iter().map(|(name, value)| attribute(name, value)).collect();
    let status = span.error.map(|error| {
        attributes.push(attribute(ERROR, error.into()));
        Status { message: error.to_owned(), code: StatusCode::Error.into() }
    });
    let kind = match span.kind {
        Kind::Internal => SpanKind::Internal,
        Kind::Server => SpanKind::Server,
        Kind::Client => SpanKind::Client,
    };
    ProtoSpan {
        span_id: span.id.0.to_vec(),
        parent_span_id: span.parent.map(|id| id.0.to_vec()).unwrap_or_default(),
        name: span.name,
        kind: kind.into(),
        start_time_unix_nano: nanos(span.time.0),
        end_time_unix_nano: nanos(span.time.1.max(span.time.0)),
        attributes,
        links: span.links.into_iter().map(link).collect(),
        status,
        trace_id,
    }
}

fn attribute(name: &str, value: Value) -> KeyValue {
    let value = match value {
        Value::Text(text) => Any::Text(text),
        Value::Number(number) => Any::Number(number),
    };
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: name.to_owned(), value }
}
