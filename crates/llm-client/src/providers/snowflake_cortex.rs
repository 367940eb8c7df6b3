//! Snowflake Cortex. Keys are programmatic access tokens; OAuth tokens use the same header.
//! <https://docs.snowflake.com/en/user-guide/snowflake-cortex/cortex-rest-api>

use llm_protocol::Dialect;

use super::{COMPATIBLE, Model, Provider, Spoken};

pub(super) const PROVIDER: Provider = Provider {
    speaks,
    ..Provider::chat(
        "snowflake-cortex",
        &[COMPATIBLE],
        "https://${SNOWFLAKE_ACCOUNT}.snowflakecomputing.com/api/v2/cortex/v1",
    )
};

fn speaks(model: &Model<'_>) -> Spoken {
    let chat = Spoken::chat(model);
    let max_tokens_field = Some("max_completion_tokens".to_owned());
    Spoken { dialect: Dialect { max_tokens_field, ..chat.dialect }, ..chat }
}
