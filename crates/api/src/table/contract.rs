//! Reads from a handler's types what its route takes and answers. A document cannot say anything else than the code.

use axum::Json;
use axum::extract::{Path, State};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

use crate::ApiState;
use crate::error::ApiError;
use crate::follow::{EventSchema, FrameSchema};
use crate::surface::dialect::Dialect;
use crate::surface::extract::{
    Believes, Body, Caller, CanAdminister, CanPrompt, CanRead, LargeRead, OwnPage, Pack, Params,
    Upload, UploadPlace,
};
use crate::surface::native::export::Exported;
use crate::surface::native::keys::{Created, KeyView, NewKeyView, Revoked};
use crate::surface::native::log::Log;
use crate::surface::native::login::{LoggedIn, LoggedOut};
use crate::surface::native::me::MeView;
use crate::surface::native::outputs::{OUTPUT, OutputFile};
use crate::surface::native::people::{Changed, PersonView};
use crate::surface::native::recovery::{MadeCodes, NewCodesView};
use crate::surface::native::repository::{BUNDLE, BundleFile, PATCH, PatchFile};
use crate::surface::native::sso::{Begun, BegunView, ConnectionView, MadeConnection};
use crate::surface::native::usage::UsageReply;
use crate::surface::paged::{JsonText, Paged};
use crate::view::UsageView;

/// Writes the schemas of types, each once, under their names.
pub(super) struct Schemas {
    takes: SchemaGenerator,
    answers: SchemaGenerator,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            })
        };
        Self {
            takes: settings().for_deserialize().into_generator(),
            answers: settings().for_serialize().into_generator(),
        }
    }

    /// Returns the named schemas. A type that is taken and answered has one: what we answer.
    pub(super) fn into_named(mut self) -> Map<String, Value> {
        let mut named = self.takes.take_definitions(true);
        named.extend(self.answers.take_definitions(true));
        named
    }
}

/// A document's description of an operation, besides its name and place.
#[derive(Default)]
pub(super) struct Operation {
    /// The schema of an object with the parameters of the query.
    pub(super) query: Option<Schema>,
    pub(super) body: Option<Schema>,
    /// The media types of the body.
    pub(super) takes: &'static [&'static str],
    pub(super) answer: Option<Answer>,
}

/// A successful answer.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// `None`: it has no body.
    pub(super) body: Option<Schema>,
    /// Another page may follow: `X-Next-Cursor` says where it begins.
    pub(super) is_page: bool,
    /// The media type of the body.
    pub(super) media: &'static str,
    /// The data of a server-sent event, where the answer may also be a stream of those.
    pub(super) frame: Option<Schema>,
}

/// An argument of a handler.
pub(super) trait Argument {
    /// Says what it takes from a request.
    fn describe(_: &mut Operation, _: &mut Schemas) {}
}

impl Argument for State<ApiState> {}
impl Argument for Dialect {}
impl Argument for LargeRead {}
impl Argument for UploadPlace {}
impl Argument for HeaderMap {}
/// The path itself names its parameters, and all are texts.
impl<T> Argument for Path<T> {}

impl Argument for CanRead {}
impl Argument for CanPrompt {}
impl Argument for CanAdminister {}
impl Argument for Caller {}
impl Argument for Believes {}
impl Argument for OwnPage {}

impl<T: JsonSchema> Argument for Params<T> {
    fn describe(operation: &mut Operation, schemas: &mut Schemas) {
        // Written out, since a parameter stands by itself in a document.
        operation.query = Some(T::json_schema(&mut schemas.takes));
    }
}

impl<T: JsonSchema> Argument for Body<T> {
    fn describe(operation: &mut Operation, schemas: &mut Schemas) {
        operation.body = Some(schemas.takes.subschema_for::<T>());
        operation.takes = &[JSON];
    }
}

/// An export of ours, or of the released client.
impl Argument for Upload {
    fn describe(operation: &mut Operation, _: &mut Schemas) {
        operation.body = Some(json_schema!({}));
        operation.takes = &[LINES, JSON];
    }
}

impl Argument for Pack {
    fn describe(operation: &mut Operation, _: &mut Schemas) {
        operation.body = Some(json_schema!({ "type": "string", "format": "binary" }));
        operation.takes = &[PACK];
    }
}

/// Any JSON.
impl Argument for Bytes {
    fn describe(operation: &mut Operation, _: &mut Schemas) {
        operation.body = Some(json_schema!({}));
        operation.takes = &[JSON];
    }
}

/// The media types of bodies.
pub(super) const JSON: &str = "application/json";
pub(super) const LINES: &str = "application/x-ndjson";
const PACK: &str = "application/x-git-packed-objects";

/// A body that handlers answer with.
pub(super) trait Reply {
    /// Says what it is.
    fn describe(schemas: &mut Schemas) -> Answer;
}

impl<T: JsonSchema> Reply for Json<T> {
    fn describe(schemas: &mut Schemas) -> Answer {
        let body = Some(schemas.answers.subschema_for::<T>());
        Answer { status: StatusCode::OK, body, is_page: false, media: JSON, frame: None }
    }
}

impl<T: JsonSchema> Reply for Paged<T> {
    fn describe(schemas: &mut Schemas) -> Answer {
        Answer { is_page: true, ..Json::<T>::describe(schemas) }
    }
}

impl<T: JsonSchema> Reply for JsonText<T> {
    fn describe(schemas: &mut Schemas) -> Answer {
        Json::<T>::describe(schemas)
    }
}

/// Events are as the build that wrote them has stored them: an older one's may lack what came later. So their schemas
/// are those that a reader needs.
impl Reply for Log {
    fn describe(schemas: &mut Schemas) -> Answer {
        let event = schemas.takes.subschema_for::<EventSchema>();
        let frame = schemas.takes.subschema_for::<FrameSchema>();
        let body = Some(json_schema!({ "type": "array", "items": event }));
        Answer { status: StatusCode::OK, body, is_page: true, media: JSON, frame: Some(frame) }
    }
}

/// A login's answer is who one is; its cookie is a header.
impl Reply for LoggedIn {
    fn describe(schemas: &mut Schemas) -> Answer {
        Json::<MeView>::describe(schemas)
    }
}

impl Reply for LoggedOut {
    fn describe(schemas: &mut Schemas) -> Answer {
        StatusCode::describe(schemas)
    }
}

impl Reply for Changed {
    fn describe(schemas: &mut Schemas) -> Answer {
        Json::<PersonView>::describe(schemas)
    }
}

impl Reply for Revoked {
    fn describe(schemas: &mut Schemas) -> Answer {
        Json::<KeyView>::describe(schemas)
    }
}

impl Reply for Created {
    fn describe(schemas: &mut Schemas) -> Answer {
        Answer { status: StatusCode::CREATED, ..Json::<NewKeyView>::describe(schemas) }
    }
}

impl Reply for MadeCodes {
    fn describe(schemas: &mut Schemas) -> Answer {
        Answer { status: StatusCode::CREATED, ..Json::<NewCodesView>::describe(schemas) }
    }
}

impl Reply for MadeConnection {
    fn describe(schemas: &mut Schemas) -> Answer {
        Answer { status: StatusCode::CREATED, ..Json::<ConnectionView>::describe(schemas) }
    }
}

/// The cookie is a header.
impl Reply for Begun {
    fn describe(schemas: &mut Schemas) -> Answer {
        Json::<BegunView>::describe(schemas)
    }
}

/// A line of an export is an object with a `type`.
impl Reply for Exported {
    fn describe(_: &mut Schemas) -> Answer {
        let body = Some(json_schema!({ "type": "object", "required": ["type"] }));
        Answer { status: StatusCode::OK, body, is_page: false, media: LINES, frame: None }
    }
}

/// Sums of usage are JSON, or CSV where that is asked for.
impl Reply for UsageReply {
    fn describe(schemas: &mut Schemas) -> Answer {
        Json::<UsageView>::describe(schemas)
    }
}

/// A patch is text.
impl Reply for PatchFile {
    fn describe(_: &mut Schemas) -> Answer {
        let body = Some(json_schema!({ "type": "string" }));
        Answer { status: StatusCode::OK, body, is_page: false, media: PATCH, frame: None }
    }
}

/// An output is text.
impl Reply for OutputFile {
    fn describe(_: &mut Schemas) -> Answer {
        let body = Some(json_schema!({ "type": "string" }));
        Answer { status: StatusCode::OK, body, is_page: false, media: OUTPUT, frame: None }
    }
}

/// A bundle is bytes.
impl Reply for BundleFile {
    fn describe(_: &mut Schemas) -> Answer {
        let body = Some(json_schema!({ "type": "string", "format": "binary" }));
        Answer { status: StatusCode::OK, body, is_page: false, media: BUNDLE, frame: None }
    }
}

/// Handlers that answer with nothing but a status answer 204.
impl Reply for StatusCode {
    fn describe(_: &mut Schemas) -> Answer {
        Answer { status: Self::NO_CONTENT, body: None, is_page: false, media: JSON, frame: None }
    }
}

/// The result of a handler.
pub(super) trait Outcome {
    /// The answer if all goes well.
    type Reply: Reply;
}

impl<R: Reply> Outcome for Result<R, ApiError> {
    type Reply = R;
}

impl<T: JsonSchema> Outcome for Json<T> {
    type Reply = Self;
}

/// A handler whose arguments and answer say what they are. `A` is the tuple of its arguments.
pub(super) trait Typed<A> {
    /// Says what it takes and answers.
    fn describe(schemas: &mut Schemas) -> Operation;
}

macro_rules! typed {
    ($($argument:ident)*) => {
        impl<F, Fut, O, $($argument),*> Typed<($($argument,)*)> for F
        where
            F: Fn($($argument),*) -> Fut,
            Fut: Future<Output = O>,
            O: Outcome,
            $($argument: Argument,)*
        {
            fn describe(schemas: &mut Schemas) -> Operation {
                let answer = Some(<O::Reply as Reply>::describe(schemas));
                let mut operation = Operation { answer, ..Operation::default() };
                $($argument::describe(&mut operation, schemas);)*
                operation
            }
        }
    };
}
typed!(A1);
typed!(A1 A2);
typed!(A1 A2 A3);
typed!(A1 A2 A3 A4);
typed!(A1 A2 A3 A4 A5);
typed!(A1 A2 A3 A4 A5 A6);
