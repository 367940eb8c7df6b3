use std::fmt;

use crate::Bundle;

macro_rules! needs {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $bundle:ident, $about:literal;)+) => {
        /// Something that a request wants to do. Each line of the route table names one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Need {
            $($(#[$doc])* $name,)+
        }

        impl Need {
            /// All needs.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$name),+];

            /// Returns the name that scopes, errors and documents use.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }

            /// Returns the bundle of scopes that has it.
            #[must_use]
            pub fn bundle(self) -> Bundle {
                match self { $(Self::$name => Bundle::$bundle),+ }
            }

            /// Says for people what it is.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self { $(Self::$name => $about),+ }
            }
        }
    };
}

needs! {
    /// Reads projects, sessions, logs, files, models.
    SessionRead = "session.read", Read, "read projects, sessions, logs, files and models";
    /// Makes, prompts, answers, interrupts, changes and deletes sessions.
    SessionPrompt = "session.prompt", Prompt, "make, prompt, answer, interrupt, change and delete sessions";
    /// Reads exact requests with their System Context; exports; rebuilds and checks rows.
    SessionInspect = "session.inspect", Administer, "explain requests, export sessions, rebuild and check rows";
    /// Reads and changes instructions and settings of the organisation.
    SettingsManage = "settings.manage", Administer, "change instructions and settings";
    /// Sets model providers up, with credentials and sign-ins.
    ProviderManage = "provider.manage", Administer, "set up model providers, credentials and sign-ins";
    /// Reads who one is, and which keys one has.
    MeRead = "me.read", Read, "see one's own name, role and keys";
    /// Changes one's name, and makes keys and logins for oneself.
    MeManage = "me.manage", Administer, "change one's own name, keys and logins";
    /// Reads who belongs to the organisation.
    PeopleRead = "people.read", Read, "see who belongs to the organisation";
    /// Changes roles below owner, and disables people.
    PeopleManage = "people.manage", Administer, "change roles and disable people, but owners";
    /// Makes and revokes keys of others and of service accounts.
    KeyManage = "key.manage", Administer, "see, make and revoke keys of others and of services";
    /// Makes owners, and changes them.
    OwnerManage = "owner.manage", Administer, "make owners, change and disable them";
    /// Names who vouches for people: whoever can do that can be anybody.
    SsoManage = "sso.manage", Administer, "set up single sign-on";
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
