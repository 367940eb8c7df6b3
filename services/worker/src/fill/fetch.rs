//! Speaks git's protocol with the repository's server, through the one way out.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use egress::{EgressError, FetchLimits, Transport};
use futures::StreamExt;
use git_wire::{
    Advertised, Listed, Oid, OldServer, PackEvent, PackReader, RefList, RefName, WireError,
};
use llm_client::{ProviderTransport, WireRequest, WireResponse};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode, Url};
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;
use workspaces::{Address, FillBounds, TooLarge};

use super::{Fault, Fill, Fills, NOTE_EVERY};

/// The longest silence of a server in the middle of an answer.
const SILENCE: Duration = Duration::from_secs(60);
/// The longest time for a short answer.
const SHORT: Duration = Duration::from_secs(30);
/// The longest time for a pack.
const WHOLE: Duration = Duration::from_secs(60 * 60);
/// The most bytes of an advertisement. An old server's has its refs.
const ADVERTISED: usize = 32 * 1024 * 1024;
/// The most bytes of a list of refs.
const LISTED: u64 = 64 * 1024 * 1024;

/// A repository at its server.
pub(super) struct Remote<'a> {
    address: &'a Address,
    transport: Transport,
    bounds: FillBounds,
}

/// A repository's branches and tags, and the address at which it answered.
pub(super) struct Resolved {
    url: String,
    pub(super) head: Option<RefName>,
    pub(super) refs: Vec<Listed>,
    /// A server that speaks no version 2. Its packs may lean on earlier ones.
    pub(super) old: Option<OldServer>,
}

/// The answer at one of a repository's addresses.
enum Asked {
    Answers,
    /// So does a server of an earlier version, which has told its refs.
    AnswersAsOld(OldServer),
    /// It is not there; another address may be right.
    Elsewhere(Fault),
}

impl<'a> Remote<'a> {
    pub(super) fn new(fills: &Fills, address: &'a Address) -> Self {
        Self { address, transport: fills.egress.for_organisations(), bounds: fills.bounds }
    }

    fn host(&self) -> &str {
        &self.address.host
    }

    /// Returns the address without what is wanted.
    pub(super) fn url(&self) -> String {
        self.address.url()
    }

    pub(super) fn ends(&self, code: &'static str, stage: &str, why: &impl ToString) -> Fault {
        Fault::ends(code, format!("{stage} {}: {}", self.url(), why.to_string()))
    }

    fn later(&self, stage: &str, why: &str) -> Fault {
        Fault::later(format!("{stage} {}: {why}", self.url()))
    }

    /// Asks for the repository's branches and tags.
    pub(super) async fn resolve(&self) -> Result<Resolved, Fault> {
        let mut last = None;
        for url in self.address.urls() {
            match self.ask(&url).await? {
                Asked::Answers => return self.refs(url).await,
                Asked::AnswersAsOld(old) => {
                    let (head, refs) = (old.head.clone(), old.refs.clone());
                    return Ok(Resolved { url, head, refs, old: Some(old) });
                }
                // The first answer is about the address that a person wrote.
                Asked::Elsewhere(fault) => last = last.or(Some(fault)),
            }
        }
        Err(last.unwrap_or_else(|| self.later("resolving", "it has no address")))
    }

    async fn ask(&self, url: &str) -> Result<Asked, Fault> {
        let stage = "resolving";
        let asked = self.parse(&format!("{url}/info/refs?service=git-upload-pack"))?;
        let limits = FetchLimits { time: SHORT, bytes: ADVERTISED, redirects: 0 };
        let fetched = match self.transport.fetch(asked, headers(), limits).await {
            Ok(fetched) => fetched,
            Err(EgressError::Redirects(_) | EgressError::BadRedirect | EgressError::Barred(_)) => {
                let why = format!(
                    "{} redirects to another address, which is not followed; open it in a browser and use the address \
                     where it ends",
                    self.host()
                );
                return Ok(Asked::Elsewhere(self.ends("redirected", stage, &why)));
            }
            Err(EgressError::Refused(refused)) => {
                return Err(self.ends("refused_address", stage, &refused));
            }
            Err(EgressError::TooLarge(_)) => {
                return Err(self.ends("too_large", stage, &"its list of branches has no end"));
            }
            Err(error @ (EgressError::Network { .. } | EgressError::Slow(_))) => {
                return Err(
                    self.later(stage, &format!("{} cannot be reached: {error}", self.host()))
                );
            }
        };
        if let Some(fault) = self.status(stage, fetched.status) {
            let elsewhere = matches!(fetched.status, StatusCode::NOT_FOUND | StatusCode::GONE);
            return if elsewhere { Ok(Asked::Elsewhere(fault)) } else { Err(fault) };
        }
        match Advertised::parse(&fetched.body) {
            Ok(_) => Ok(Asked::Answers),
            Err(WireError::Version) => match OldServer::parse(&fetched.body) {
                Ok(old) => Ok(Asked::AnswersAsOld(old)),
                Err(error) => Err(self.wire(stage, &error)),
            },
            Err(error) => Ok(Asked::Elsewhere(self.ends("no_repository", stage, &error))),
        }
    }

    /// Returns the fault of a status, if it is one.
    fn status(&self, stage: &str, status: StatusCode) -> Option<Fault> {
        let host = self.host();
        match status.as_u16() {
            200 => None,
            401 | 403 => Some(self.ends(
                "denied",
                stage,
                &format!(
                    "{host} denies it ({status}): it is private, or there is no such repository; only public ones are read \
                     here, so check the address"
                ),
            )),
            404 | 410 => Some(self.ends(
                "not_found",
                stage,
                &format!("{host} has no such repository ({status}); check the address"),
            )),
            408 | 425 | 429 | 500..=599 => Some(self.later(stage, &format!("{host} answers {status}"))),
            _ => Some(self.ends("refused", stage, &format!("{host} answers {status}"))),
        }
    }

    async fn refs(&self, url: String) -> Result<Resolved, Fault> {
        let stage = "resolving";
        let mut answer = self.post(stage, &url, git_wire::ls_refs()).await?;
        let (mut list, mut bytes) = (RefList::default(), 0_u64);
        while let Some(chunk) = self.chunk(stage, &mut answer).await? {
            bytes += chunk.len() as u64;
            if bytes > LISTED {
                return Err(self.ends("too_large", stage, &"its list of branches has no end"));
            }
            list.push(&chunk).map_err(|error| self.wire(stage, &error))?;
        }
        let (head, refs) = list.finish().map_err(|error| self.wire(stage, &error))?;
        Ok(Resolved { url, head, refs, old: None })
    }

    /// Fetches a pack to the file `to`, and notes from time to time how many bytes have come.
    pub(super) async fn pack(
        &self,
        fill: &Fill<'_>,
        from: &Resolved,
        wants: &[Oid],
        haves: &[Oid],
        to: &Path,
    ) -> Result<u64, Fault> {
        let stage = "fetching";
        let (body, mut reader) = match &from.old {
            None => (git_wire::fetch(wants, haves), PackReader::default()),
            Some(old) => (old.fetch(wants, haves), PackReader::of_old()),
        };
        let mut answer = self.post(stage, &from.url, body).await?;
        let disk = |error: std::io::Error| {
            Fault::later(format!("{stage}: the pack cannot be kept: {error}"))
        };
        let mut file = tokio::io::BufWriter::new(tokio::fs::File::create(to).await.map_err(disk)?);
        let mut noted = Instant::now();
        let fetched = async {
            while let Some(chunk) = self.chunk(stage, &mut answer).await? {
                for event in reader.push(&chunk).map_err(|error| self.wire(stage, &error))? {
                    if let PackEvent::Bytes(bytes) = event {
                        file.write_all(&bytes).await.map_err(disk)?;
                    }
                }
                if reader.bytes() > self.bounds.pack_bytes {
                    let large = TooLarge::Pack(self.bounds.pack_bytes);
                    return Err(self.ends("too_large", stage, &large));
                }
                if noted.elapsed() >= NOTE_EVERY {
                    noted = Instant::now();
                    fill.stage(stage, reader.bytes()).await?;
                }
            }
            Ok(())
        };
        match tokio::time::timeout(WHOLE, fetched).await {
            Ok(fetched) => fetched?,
            Err(_) => return Err(self.later(stage, "it took longer than an hour")),
        }
        file.flush().await.map_err(disk)?;
        file.into_inner().sync_all().await.map_err(disk)?;
        reader.finish().map_err(|error| self.wire(stage, &error))
    }

    fn wire(&self, stage: &str, error: &WireError) -> Fault {
        match error {
            WireError::BrokenOff => self.later(stage, &error.to_string()),
            WireError::Remote(words) if words.contains("not our ref") => self.ends(
                "commit_gone",
                stage,
                &"the commit that this session begins with is not there any more (its branch was rewritten, or there is no \
                  such commit); start a new session",
            ),
            WireError::NoPackets
            | WireError::Version
            | WireError::ObjectFormat(_)
            | WireError::Unknown(_)
            | WireError::Remote(_)
            | WireError::TooManyRefs(_) => self.ends("refused", stage, error),
        }
    }

    fn parse(&self, url: &str) -> Result<Url, Fault> {
        Url::parse(url).map_err(|error| self.ends("bad_address", "resolving", &error))
    }

    async fn post(&self, stage: &str, url: &str, body: Vec<u8>) -> Result<WireResponse, Fault> {
        let url = self.parse(&format!("{url}/git-upload-pack"))?;
        let mut headers = headers();
        let kind = HeaderValue::from_static("application/x-git-upload-pack-request");
        headers.insert(CONTENT_TYPE, kind);
        let request = WireRequest { method: Method::POST, url, headers, body: Bytes::from(body) };
        let sent = tokio::time::timeout(SILENCE, self.transport.send(request)).await;
        let answer = match sent {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(self.later(stage, &error.message)),
            Err(_) => return Err(self.later(stage, "it does not answer")),
        };
        match self.status(stage, answer.status) {
            None => Ok(answer),
            Some(fault) => Err(fault),
        }
    }

    async fn chunk(&self, stage: &str, answer: &mut WireResponse) -> Result<Option<Bytes>, Fault> {
        match tokio::time::timeout(SILENCE, answer.body.next()).await {
            Ok(None) => Ok(None),
            Ok(Some(Ok(chunk))) => Ok(Some(chunk)),
            Ok(Some(Err(error))) => Err(self.later(stage, &error.message)),
            Err(_) => {
                Err(self.later(stage, &format!("it has been silent for {} s", SILENCE.as_secs())))
            }
        }
    }
}

fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(HeaderName::from_static("git-protocol"), HeaderValue::from_static("version=2"));
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    headers
}
