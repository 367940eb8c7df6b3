//! Takes a shell script apart into its simple commands and its redirections.
//!
//! All that may run is taken apart: both branches of an `if`, the bodies of functions, the scripts in substitutions.

use brush_parser::ast::{
    AndOr, AndOrList, Assignment, AssignmentName, AssignmentValue, Command,
    CommandPrefixOrSuffixItem, CompoundCommand, CompoundList, ExtendedTestExpr, IoFileRedirectKind,
    IoFileRedirectTarget, IoHereDocument, IoRedirect, SimpleCommand,
};
use brush_parser::{ParserOptions, Token, parse_tokens, uncached_tokenize_str};

use super::word::{Word, is_usual_tag, scripts_of_body};

/// The longest script, in bytes.
pub(super) const MAX_BYTES: usize = 64 * 1024;
/// The most scripts within each other.
const MAX_DEPTH: usize = 8;
/// The most signs that begin a nested construct, counted wherever they stand: the parser's recursion has no bound.
const MAX_OPENERS: usize = 512;
/// The most of them that are groups, loops and the like. These cost the parser more.
const MAX_GROUPS: usize = 64;
/// The most `case` and `=~`, for which the parser goes back twice at each level.
const MAX_BACKTRACKS: usize = 4;
/// The most commands and redirections of one script, with those within it.
const MAX_PARTS: usize = 256;

/// Commands of the shell that give values to the variables that their arguments name.
const GIVES_VALUES: [&str; 8] =
    ["read", "mapfile", "readarray", "getopts", "printf", "declare", "typeset", "local"];

/// A command with nothing around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Simple {
    /// Variables that are set for it, or by it alone: the name, and the whole as it was written.
    pub(super) assigned: Vec<(String, String)>,
    /// Its name and arguments. Empty for assignments alone.
    pub(super) words: Vec<Word>,
    /// The text that it is given to read, as far as the script says.
    pub(super) input: Option<Input>,
    /// Whether words follow that are known only when it runs, as those of `xargs`.
    pub(super) has_more: bool,
}

/// A heredoc or here-string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Input {
    /// Exactly this.
    Known(String),
    /// Something is expanded in it.
    Expanded,
}

/// A file that a redirection names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Redirected {
    pub(super) file: Word,
    pub(super) is_written: bool,
}

/// A value that a script gives a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Variable {
    pub(super) name: String,
    /// `None` if it is known only when the script runs.
    pub(super) value: Option<Word>,
}

/// The parts of a script, in the order of its text.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) commands: Vec<Simple>,
    pub(super) redirected: Vec<Redirected>,
    pub(super) variables: Vec<Variable>,
    /// A part of it may run more than once, or later than where it stands: it has a loop or a function.
    pub(super) is_repeated: bool,
}

/// Takes a script apart. `None` if it is no script, is beyond the bounds, or is too unusual to be sure.
pub(super) fn read(text: &str) -> Option<Script> {
    let mut script = Script::default();
    Reader { script: &mut script, depth: 0 }.read(text)?;
    Some(script)
}

fn options() -> ParserOptions {
    // As in a script of bash.
    ParserOptions { enable_extended_globbing: false, ..ParserOptions::default() }
}

/// Returns the tokens, unless parsing them may take too long or too much of the stack.
fn tokens(text: &str) -> Option<Vec<Token>> {
    let is_odd = |c: char| (c.is_control() || c.is_whitespace()) && !matches!(c, ' ' | '\t' | '\n');
    if text.len() > MAX_BYTES || text.contains(is_odd) || has_long_number(text) {
        return None;
    }
    let openers: usize =
        ["$(", "${", "$[", "<<", "`"].map(|opener| text.matches(opener).count()).iter().sum();
    if openers > MAX_OPENERS {
        return None;
    }
    let tokens = uncached_tokenize_str(text, &options().tokenizer_options()).ok()?;
    let (mut groups, mut backtracks, mut was_paren) = (0, 0, false);
    for token in &tokens {
        let is_paren = matches!(token, Token::Operator(text, _) if text == "(");
        // The parser takes exponential time to find out that it is no arithmetic.
        if is_paren && was_paren {
            return None;
        }
        was_paren = is_paren;
        groups += usize::from(is_paren || is_group(token.to_str()));
        backtracks += usize::from(matches!(token.to_str(), "case" | "=~"));
    }
    (groups <= MAX_GROUPS && backtracks <= MAX_BACKTRACKS).then_some(tokens)
}

fn is_group(word: &str) -> bool {
    let groups =
        ["{", "[[", "!", "if", "while", "until", "for", "case", "select", "function", "coproc"];
    groups.contains(&word)
}

/// Returns whether the number of a file descriptor is larger than the parser can hold.
fn has_long_number(text: &str) -> bool {
    let mut digits = 0;
    text.bytes().any(|byte| {
        let is_long = digits > 8 && matches!(byte, b'<' | b'>');
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        is_long
    })
}

struct Reader<'a> {
    script: &'a mut Script,
    depth: usize,
}

impl Reader<'_> {
    fn read(&mut self, text: &str) -> Option<()> {
        if self.depth > MAX_DEPTH {
            return None;
        }
        let tokens = tokens(text)?;
        if tokens.is_empty() {
            return Some(());
        }
        let program = parse_tokens(&tokens, &options()).ok()?;
        program.complete_commands.iter().try_for_each(|list| self.list(list))
    }

    fn nested(&mut self, scripts: &[String]) -> Option<()> {
        self.depth += 1;
        scripts.iter().try_for_each(|script| self.read(script))?;
        self.depth -= 1;
        Some(())
    }

    fn word(&mut self, raw: &str) -> Option<Word> {
        let word = Word::new(raw)?;
        self.nested(&word.scripts)?;
        Some(word)
    }

    fn has_room(&self) -> Option<()> {
        let parts = self.script.commands.len() + self.script.redirected.len();
        (parts < MAX_PARTS).then_some(())
    }

    fn list(&mut self, list: &CompoundList) -> Option<()> {
        list.0.iter().try_for_each(|item| self.and_or(&item.0))
    }

    fn and_or(&mut self, list: &AndOrList) -> Option<()> {
        let others = list.additional.iter().map(|(AndOr::And(next) | AndOr::Or(next))| next);
        let pipelines = std::iter::once(&list.first).chain(others);
        pipelines.flat_map(|pipeline| &pipeline.seq).try_for_each(|command| self.command(command))
    }

    fn command(&mut self, command: &Command) -> Option<()> {
        match command {
            Command::Simple(simple) => self.simple(simple),
            Command::Compound(compound, redirects) => {
                self.compound(compound)?;
                self.redirects(redirects.iter().flat_map(|list| &list.0))
            }
            Command::Function(function) => {
                self.script.is_repeated = true;
                self.compound(&function.body.0)?;
                self.redirects(function.body.1.iter().flat_map(|list| &list.0))
            }
            Command::ExtendedTest(test, redirects) => {
                self.test(&test.expr)?;
                self.redirects(redirects.iter().flat_map(|list| &list.0))
            }
        }
    }

    fn compound(&mut self, compound: &CompoundCommand) -> Option<()> {
        match compound {
            // Two parentheses side by side are refused before they are parsed.
            CompoundCommand::Arithmetic(_) | CompoundCommand::ArithmeticForClause(_) => None,
            CompoundCommand::BraceGroup(group) => self.list(&group.list),
            CompoundCommand::Subshell(shell) => self.list(&shell.list),
            CompoundCommand::ForClause(clause) => {
                self.script.is_repeated = true;
                for value in clause.values.iter().flatten() {
                    let word = self.word(&value.value)?;
                    self.give(&clause.variable_name, Some(word));
                }
                if clause.values.is_none() {
                    self.give(&clause.variable_name, None);
                }
                self.list(&clause.body.list)
            }
            CompoundCommand::CaseClause(clause) => {
                self.word(&clause.value.value)?;
                for case in &clause.cases {
                    for pattern in &case.patterns {
                        self.word(&pattern.value)?;
                    }
                    case.cmd.iter().try_for_each(|list| self.list(list))?;
                }
                Some(())
            }
            CompoundCommand::IfClause(clause) => {
                self.list(&clause.condition)?;
                self.list(&clause.then)?;
                clause.elses.iter().flatten().try_for_each(|other| {
                    other.condition.iter().try_for_each(|list| self.list(list))?;
                    self.list(&other.body)
                })
            }
            CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
                self.script.is_repeated = true;
                self.list(&clause.0)?;
                self.list(&clause.1.list)
            }
            CompoundCommand::Coprocess(process) => self.command(&process.body),
        }
    }

    fn test(&mut self, test: &ExtendedTestExpr) -> Option<()> {
        match test {
            ExtendedTestExpr::And(left, right) | ExtendedTestExpr::Or(left, right) => {
                self.test(left)?;
                self.test(right)
            }
            ExtendedTestExpr::Not(test) | ExtendedTestExpr::Parenthesized(test) => self.test(test),
            ExtendedTestExpr::UnaryTest(_, word) => self.word(&word.value).map(|_| ()),
            ExtendedTestExpr::BinaryTest(_, left, right) => {
                self.word(&left.value)?;
                self.word(&right.value).map(|_| ())
            }
        }
    }

    fn simple(&mut self, simple: &SimpleCommand) -> Option<()> {
        self.has_room()?;
        let (assigned, words, input) = (Vec::new(), Vec::new(), None);
        let mut command = Simple { assigned, words, input, has_more: false };
        for item in simple.prefix.iter().flat_map(|prefix| &prefix.0) {
            match item {
                CommandPrefixOrSuffixItem::AssignmentWord(assignment, whole) => {
                    self.assignment(assignment, &whole.value)?;
                    let AssignmentName::VariableName(name) = &assignment.name else { continue };
                    command.assigned.push((name.clone(), whole.value.clone()));
                }
                other @ (CommandPrefixOrSuffixItem::IoRedirect(_)
                | CommandPrefixOrSuffixItem::Word(_)
                | CommandPrefixOrSuffixItem::ProcessSubstitution(..)) => {
                    self.item(other, &mut command)?;
                }
            }
        }
        if let Some(name) = &simple.word_or_name {
            command.words.push(self.word(&name.value)?);
        }
        for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
            self.item(item, &mut command)?;
        }
        self.give_unknown(&command.words);
        self.script.commands.push(command);
        Some(())
    }

    /// Notes the variables to which a command of the shell gives values: nobody knows which.
    fn give_unknown(&mut self, words: &[Word]) {
        let gives = |name: &str| GIVES_VALUES.contains(&name);
        if words.first().and_then(Word::exact).is_some_and(gives) {
            // With `-n` a variable stands for another.
            let names_other = |word: &Word| word.exact() == Some("-n");
            let is_other = words.iter().any(names_other);
            let names = words[1..].iter().filter_map(|word| word.text.as_deref());
            let names = names.filter_map(|text| match text.split_once('=') {
                Some((name, _)) => Some(name).filter(|_| is_other),
                None => Some(text),
            });
            for name in names.map(str::to_owned).collect::<Vec<_>>() {
                self.give(&name, None);
            }
        }
    }

    fn item(&mut self, item: &CommandPrefixOrSuffixItem, command: &mut Simple) -> Option<()> {
        match item {
            CommandPrefixOrSuffixItem::IoRedirect(redirect) => {
                if let Some(input) = self.redirect(redirect)? {
                    command.input = Some(input);
                }
            }
            CommandPrefixOrSuffixItem::Word(word) => command.words.push(self.word(&word.value)?),
            CommandPrefixOrSuffixItem::AssignmentWord(assignment, whole) => {
                self.assignment(assignment, &whole.value)?;
                let word = Word::new(&whole.value).unwrap_or_else(|| Word::unknown(&whole.value));
                command.words.push(word);
            }
            CommandPrefixOrSuffixItem::ProcessSubstitution(_, shell) => {
                self.list(&shell.list)?;
                command.words.push(Word::unknown("<(…)"));
            }
        }
        Some(())
    }

    fn give(&mut self, name: &str, value: Option<Word>) {
        self.script.variables.push(Variable { name: name.to_owned(), value });
    }

    fn assignment(&mut self, assignment: &Assignment, whole: &str) -> Option<()> {
        let (AssignmentName::VariableName(name) | AssignmentName::ArrayElementName(name, _)) =
            &assignment.name;
        let value = whole.strip_prefix(name.as_str()).and_then(|rest| rest.strip_prefix('='));
        let is_text = matches!(assignment.value, AssignmentValue::Scalar(_));
        self.give(name, value.filter(|_| is_text).and_then(Word::new));
        match &assignment.value {
            AssignmentValue::Scalar(_) => self.word(whole).map(|_| ()),
            AssignmentValue::Array(elements) => elements.iter().try_for_each(|(key, value)| {
                key.iter().try_for_each(|key| self.word(&key.value).map(|_| ()))?;
                self.word(&value.value).map(|_| ())
            }),
        }
    }

    fn redirects<'r>(&mut self, mut all: impl Iterator<Item = &'r IoRedirect>) -> Option<()> {
        all.try_for_each(|redirect| self.redirect(redirect).map(|_| ()))
    }

    /// Notes a redirection's file. Returns the text that it gives to its command.
    fn redirect(&mut self, redirect: &IoRedirect) -> Option<Option<Input>> {
        match redirect {
            IoRedirect::File(_, kind, target) => self.file(kind, target)?,
            IoRedirect::OutputAndError(file, _) => self.redirected(&file.value, true)?,
            IoRedirect::HereString(_, word) => {
                let word = self.word(&word.value)?;
                return Some(Some(word.text.map_or(Input::Expanded, Input::Known)));
            }
            IoRedirect::HereDocument(_, document) => return self.heredoc(document).map(Some),
        }
        Some(None)
    }

    fn file(&mut self, kind: &IoFileRedirectKind, target: &IoFileRedirectTarget) -> Option<()> {
        match target {
            IoFileRedirectTarget::Fd(_) => Some(()),
            IoFileRedirectTarget::ProcessSubstitution(_, shell) => self.list(&shell.list),
            IoFileRedirectTarget::Duplicate(word) => {
                // `2>&1` and `2>&-` name no file, and `>&file` does.
                let is_number = |c: char| c.is_ascii_digit() || c == '-';
                if word.value.chars().all(is_number) {
                    return Some(());
                }
                self.redirected(&word.value, true)
            }
            IoFileRedirectTarget::Filename(word) => {
                let is_written = match kind {
                    IoFileRedirectKind::Read | IoFileRedirectKind::DuplicateInput => false,
                    IoFileRedirectKind::Write
                    | IoFileRedirectKind::Append
                    | IoFileRedirectKind::ReadAndWrite
                    | IoFileRedirectKind::Clobber
                    | IoFileRedirectKind::DuplicateOutput => true,
                };
                self.redirected(&word.value, is_written)
            }
        }
    }

    fn redirected(&mut self, raw: &str, is_written: bool) -> Option<()> {
        self.has_room()?;
        let file = self.word(raw)?;
        self.script.redirected.push(Redirected { file, is_written });
        Some(())
    }

    fn heredoc(&mut self, document: &IoHereDocument) -> Option<Input> {
        let IoHereDocument { requires_expansion, here_end, doc, .. } = document;
        if !is_usual_tag(&here_end.value) {
            return None;
        }
        if !requires_expansion {
            return Some(Input::Known(doc.value.clone()));
        }
        self.nested(&scripts_of_body(&doc.value)?)?;
        let is_plain = !doc.value.contains(['$', '`', '\\']);
        Some(if is_plain { Input::Known(doc.value.clone()) } else { Input::Expanded })
    }
}
