use crate::words;

words! {
    /// Why something of a session failed, or was refused. Each has a page in `docs/errors/`.
    #[derive(PartialOrd, Ord)]
    pub enum ErrorCode {
        /// Two contributors tell the model about the same thing.
        ContextDuplicateKey = "context.duplicate_key",
        /// The next request does not fit into the model's context.
        ContextTooLarge = "context.too_large",
        /// The facts that the model must be told first could not be found out.
        ContextUnavailable = "context.unavailable",
        /// A monthly limit of cost is reached.
        LimitSpending = "limit.spending",
        /// The organisation does not allow the model.
        ModelNotAllowed = "model.not_allowed",
        /// No such provider is configured.
        ModelUnknown = "model.unknown",
        /// The model has no such variant.
        ModelVariantUnknown = "model.variant_unknown",
        /// The model provider refused the credentials.
        ProviderAuthentication = "provider.authentication",
        /// The model provider withheld or refused the content.
        ProviderContentFilter = "provider.content-filter",
        /// The conversation is longer than the model's context.
        ProviderContextOverflow = "provider.context-overflow",
        /// A kept credential was entered for another host.
        ProviderCredentialOrigin = "provider.credential-origin",
        /// The model provider failed or is overloaded.
        ProviderInternal = "provider.internal",
        /// The model provider's answer cannot be read.
        ProviderInvalidOutput = "provider.invalid-output",
        /// The model provider refused the request.
        ProviderInvalidRequest = "provider.invalid-request",
        /// The account at the model provider has no credit left.
        ProviderQuota = "provider.quota",
        /// The model provider limits the rate of requests.
        ProviderRateLimit = "provider.rate-limit",
        /// A stored credential cannot be opened.
        ProviderSecretUnreadable = "provider.secret-unreadable",
        /// There is no key to seal credentials with.
        ProviderSecretsKeyMissing = "provider.secrets-key-missing",
        /// A sign-in at a model provider came to nothing.
        ProviderSignInFailed = "provider.sign-in-failed",
        /// No OAuth client of the provider is set up.
        ProviderSignInNotSetUp = "provider.sign-in-not-set-up",
        /// The model provider refused state that came from itself, such as sealed reasoning.
        ProviderStateRefused = "provider.state-refused",
        /// The model provider could not be reached, or its answer broke off.
        ProviderTransport = "provider.transport",
        /// The model provider reported an error that is not known here.
        ProviderUnknown = "provider.unknown",
        /// A prompt or its session names an agent that there is not.
        SessionAgentUnknown = "session.agent_unknown",
        /// The session has work, and what was asked for wants it idle.
        SessionBusy = "session.busy",
        /// The model did not summarise the conversation.
        SessionCompactionFailed = "session.compaction_failed",
        /// A compaction was stopped before it ended.
        SessionCompactionInterrupted = "session.compaction_interrupted",
        /// The session's work failed again and again, or the database refused what it was to write.
        SessionDrainFailed = "session.drain_failed",
        /// The session's inbox has as much as may wait.
        SessionInboxFull = "session.inbox_full",
        /// The session has no such message to go back to.
        SessionMessageUnknown = "session.message_unknown",
        /// The session has no prompt to answer.
        SessionNoPrompt = "session.no_prompt",
        /// There is nothing to summarise yet.
        SessionNothingToCompact = "session.nothing_to_compact",
        /// The session's worker died again and again without progress.
        SessionRecoveryExhausted = "session.recovery_exhausted",
        /// The session has moved since that message.
        SessionRevertAcrossMove = "session.revert_across_move",
        /// The model went on for too many steps without new input.
        TurnStepLimit = "turn.step_limit",
        /// The session's workspace could not be filled from its repository.
        WorkspaceFillFailed = "workspace.fill_failed",
        /// The session's directory is still held by tools of an earlier owner.
        WorkspaceLocked = "workspace.locked",
        /// There is no snapshot of the files to copy.
        WorkspaceNotCaptured = "workspace.not_captured",
        /// The session's files could not be made anew from their newest snapshot.
        WorkspaceRestoreFailed = "workspace.restore_failed",
        /// The session's files could not be captured or put back.
        WorkspaceSnapshotFailed = "workspace.snapshot_failed",
        /// The session's directory is not there.
        WorkspaceUnavailable = "workspace.unavailable",
    }
}
