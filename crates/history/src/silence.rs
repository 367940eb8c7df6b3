use domain::{Finish, ReplyPart, TurnReplied, ends_with_written_call};

/// The whole replies in a row from which nobody has anything: they have neither text nor calls, or end with a call that is
/// written as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Silence {
    replies: u32,
}

impl Silence {
    /// Notes a reply. One that did not come whole says nothing about the model.
    pub(crate) fn replied(&mut self, replied: &TurnReplied) {
        let whole = [Finish::Stop, Finish::Length, Finish::ToolCalls, Finish::Unknown];
        let is_silent = whole.iter().any(|finish| replied.finish == *finish)
            && (replied.parts.iter().all(ReplyPart::says_nothing)
                || ends_with_written_call(&replied.parts));
        self.replies = if is_silent { self.replies.saturating_add(1) } else { 0 };
    }

    pub(crate) fn replies(self) -> u32 {
        self.replies
    }
}
