//! Tokens that this file signs itself, with another library than the one that proves them.

use std::sync::LazyLock;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
    RSA_PSS_SHA256, RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::*;

const NOW_MS: TimestampMs = 1_700_000_000_000;
const NOW: i64 = NOW_MS / 1_000;
const ISSUER: &str = "https://id.example.com";

struct Signers {
    rsa: RsaKeyPair,
    ec: EcdsaKeyPair,
    ed: Ed25519KeyPair,
    other: Ed25519KeyPair,
    keys: Keys,
}

static SIGNERS: LazyLock<Signers> = LazyLock::new(|| {
    let rsa = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
    let ec = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
    let ed = Ed25519KeyPair::generate().expect("a key");
    let other = Ed25519KeyPair::generate().expect("a key");
    let point = ec.public_key().as_ref();
    let keys = json!({ "keys": [
        { "kty": "RSA", "kid": "rsa", "use": "sig", "n": encoded(modulus(&rsa)), "e": "AQAB" },
        { "kty": "EC", "kid": "ec", "crv": "P-256", "x": encoded(&point[1..33]), "y": encoded(&point[33..]) },
        { "kty": "OKP", "kid": "ed", "crv": "Ed25519", "x": encoded(ed.public_key().as_ref()) },
        { "kty": "oct", "kid": "oct", "k": encoded(b"published by a fool") },
        { "kty": "new", "kid": "unreadable" },
    ] });
    let keys = Keys::new(serde_json::from_value(keys).expect("keys"));
    Signers { rsa, ec, ed, other, keys }
});

/// Returns the modulus in the DER of a public key of 2048 bits (RFC 8017, A.1.1).
fn modulus(key: &RsaKeyPair) -> &[u8] {
    &key.public_key().as_ref()[9..265]
}

fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn claims() -> Value {
    json!({ "iss": ISSUER, "aud": "us", "sub": "ann", "nonce": "n-1", "iat": NOW, "exp": NOW + 300 })
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

/// Signs claims with the key that the algorithm needs.
fn signed(header: &Value, claims: &Value) -> String {
    let said = format!(
        "{}.{}",
        encoded(header.to_string().as_bytes()),
        encoded(claims.to_string().as_bytes())
    );
    let (bytes, random) = (said.as_bytes(), SystemRandom::new());
    let rsa = |padding: &'static dyn aws_lc_rs::signature::RsaEncoding| {
        let mut signature = vec![0; SIGNERS.rsa.public_modulus_len()];
        SIGNERS.rsa.sign(padding, &random, bytes, &mut signature).expect("a signature");
        signature
    };
    let mac =
        |key: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), bytes).as_ref().to_vec();
    let signature = match (header["alg"].as_str().expect("a name"), header["x-key"].as_str()) {
        ("RS256", _) => rsa(&RSA_PKCS1_SHA256),
        ("PS256", _) => rsa(&RSA_PSS_SHA256),
        ("ES256", _) => SIGNERS.ec.sign(&random, bytes).expect("a signature").as_ref().to_vec(),
        ("EdDSA", Some("other")) => SIGNERS.other.sign(bytes).as_ref().to_vec(),
        ("EdDSA", _) => SIGNERS.ed.sign(bytes).as_ref().to_vec(),
        ("HS256", Some("secret")) => mac(b"the client's secret"),
        ("HS256", Some("oct")) => mac(b"published by a fool"),
        ("HS256", _) => mac(modulus(&SIGNERS.rsa)),
        ("none", _) => Vec::new(),
        (other, _) => panic!("{other}"),
    };
    format!("{said}.{}", encoded(&signature))
}

fn proved(token: &str, algorithm: Option<Algorithm>) -> Result<Verified, TokenRefused> {
    let issuer = Issuer::parse(ISSUER).expect("an issuer");
    let expected = Expected { issuer: &issuer, client_id: "us", nonce: "n-1", algorithm };
    verify(token, &SIGNERS.keys, &expected, NOW_MS)
}

fn ed(claims: &Value) -> Result<Verified, TokenRefused> {
    proved(&signed(&json!({ "alg": "EdDSA", "kid": "ed" }), claims), None)
}

#[test]
fn a_token_of_each_algorithm_is_proved() {
    for (algorithm, kid) in [
        (Algorithm::Rs256, "rsa"),
        (Algorithm::Ps256, "rsa"),
        (Algorithm::Es256, "ec"),
        (Algorithm::EdDsa, "ed"),
    ] {
        let token =
            signed(&json!({ "alg": algorithm.as_str(), "kid": kid, "typ": "JWT" }), &claims());
        let verified = proved(&token, Some(algorithm)).expect("proved");
        assert_eq!((verified.algorithm, verified.clock_ms), (algorithm, 0));
        assert_eq!(verified.claims.text("sub"), Some("ann"));
        assert_eq!(proved(&token, None).expect("proved").algorithm, algorithm);
        // Another algorithm is pinned.
        for pinned in Algorithm::ALL.into_iter().filter(|pinned| *pinned != algorithm) {
            let refused = proved(&token, Some(pinned));
            assert!(matches!(refused, Err(TokenRefused::Algorithm(_))), "{pinned}: {refused:?}");
        }
    }
}

// Attack 6: `none`, HS256 with anything that others may know.
#[test]
fn no_symmetric_or_absent_signature_passes() {
    for header in [
        json!({ "alg": "none" }),
        json!({ "alg": "none", "kid": "rsa" }),
        json!({ "alg": "HS256", "kid": "rsa" }),
        json!({ "alg": "HS256" }),
        json!({ "alg": "HS256", "x-key": "secret" }),
        json!({ "alg": "HS256", "kid": "oct", "x-key": "oct" }),
    ] {
        let refused = proved(&signed(&header, &claims()), None);
        assert!(matches!(refused, Err(TokenRefused::Algorithm(_))), "{header}: {refused:?}");
    }
}

// Attack 6: a header cannot bring its own key.
#[test]
fn keys_come_from_the_provider_only() {
    let own = encoded(SIGNERS.other.public_key().as_ref());
    let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "x": own });
    for header in [
        json!({ "alg": "EdDSA", "kid": "ed", "x-key": "other" }),
        json!({ "alg": "EdDSA", "kid": "ed", "x-key": "other", "jwk": jwk }),
        json!({ "alg": "EdDSA", "x-key": "other", "jku": "https://evil.example/keys" }),
    ] {
        let refused = proved(&signed(&header, &claims()), None);
        assert!(matches!(refused, Err(TokenRefused::Signature(_))), "{header}: {refused:?}");
    }
    for kid in ["foreign", "rsa", "unreadable"] {
        let refused = proved(
            &signed(&json!({ "alg": "EdDSA", "kid": kid, "x-key": "other" }), &claims()),
            None,
        );
        assert_eq!(refused, Err(TokenRefused::UnknownKey), "{kid}");
    }
    let critical = json!({ "alg": "EdDSA", "kid": "ed", "crit": ["b64"], "b64": false });
    assert!(matches!(
        proved(&signed(&critical, &claims()), None),
        Err(TokenRefused::Unreadable(_))
    ));
}

// Attack 6 and 1: a token for somebody else, or of another sign-in.
#[test]
fn a_token_for_another_is_refused() {
    assert!(ed(&claims()).is_ok());
    assert_eq!(ed(&with("nonce", json!("n-2"))), Err(TokenRefused::Nonce));
    assert_eq!(ed(&with("nonce", json!(""))), Err(TokenRefused::Nonce));
    let mut none = claims();
    none.as_object_mut().expect("an object").remove("nonce");
    assert_eq!(ed(&none), Err(TokenRefused::Nonce));
    for audience in [json!("them"), json!([]), json!(["us", "them"])] {
        let refused = ed(&with("aud", audience.clone()));
        assert!(matches!(refused, Err(TokenRefused::Audience(_))), "{audience}: {refused:?}");
    }
    assert!(matches!(ed(&with("azp", json!("them"))), Err(TokenRefused::Audience(_))));
    assert!(ed(&with("azp", json!("us"))).is_ok());
    for party in [json!("them"), json!(["us"]), json!(null)] {
        let mut both = with("aud", json!(["us", "them"]));
        both["azp"] = party;
        assert!(matches!(ed(&both), Err(TokenRefused::Audience(_))), "{both}");
    }
    for issuer in ["https://id.example.com/", "https://evil.example", "http://id.example.com"] {
        let refused = ed(&with("iss", json!(issuer)));
        assert!(matches!(refused, Err(TokenRefused::Issuer(_))), "{issuer}: {refused:?}");
    }
}

// Finding: report 30-b20 (sqlpage/SQLPage#965): a provider that adds its project to the audiences let nobody in.
#[test]
fn further_audiences_are_believed_by_the_authorised_party() {
    let mut both = with("aud", json!(["us", "329836626744180738"]));
    let refused = ed(&both).expect_err("no party").to_string();
    assert!(refused.contains("`azp`"), "{refused}");
    both["azp"] = json!("us");
    assert!(ed(&both).is_ok());
    both["aud"] = json!(["them", "329836626744180738"]);
    assert!(matches!(ed(&both), Err(TokenRefused::Audience(_))));
}

// Attack 11.
#[test]
fn a_minute_of_skew_does_no_harm_and_more_is_refused() {
    let skew = SKEW_MS / 1_000;
    assert!(ed(&with("exp", json!(NOW - skew + 1))).is_ok());
    assert!(matches!(ed(&with("exp", json!(NOW - skew))), Err(TokenRefused::Time(_))));
    let ahead = ed(&with("iat", json!(NOW + skew))).expect("within the skew");
    assert_eq!(ahead.clock_ms, SKEW_MS, "the test page shows the difference");
    let refused = ed(&with("iat", json!(NOW + skew + 1))).expect_err("too far ahead").to_string();
    assert!(
        refused.contains("61 s in the future") && refused.contains("check the clocks"),
        "{refused}"
    );
    assert!(ed(&with("nbf", json!(NOW + skew))).is_ok());
    assert!(matches!(ed(&with("nbf", json!(NOW + skew + 1))), Err(TokenRefused::Time(_))));
    assert!(ed(&with("nbf", json!(i64::MIN))).is_ok());
    assert!(matches!(ed(&with("nbf", json!(i64::MAX))), Err(TokenRefused::Time(_))));
}

#[test]
fn a_text_that_is_no_token_is_refused() {
    let good = signed(&json!({ "alg": "EdDSA", "kid": "ed" }), &claims());
    let (said, _) = good.rsplit_once('.').expect("three parts");
    for bad in ["", "a.b.c", "....", said, &format!("{said}.")] {
        assert!(proved(bad, None).is_err(), "{bad}");
    }
    // One changed claim under the old signature.
    let parts: Vec<&str> = good.split('.').collect();
    let other = encoded(with("sub", json!("eve")).to_string().as_bytes());
    let forged = [parts[0], &other, parts[2]].join(".");
    assert!(matches!(proved(&forged, None), Err(TokenRefused::Signature(_))));
}

// Finding reports 24: a claim that nobody uses kept everybody out if its type was not the standard's.
#[test]
fn claims_that_nobody_uses_may_be_of_any_type() {
    let odd = [
        ("address", json!("1 Road")),
        ("auth_time", json!("1699999990")),
        ("auth_time", json!({})),
        ("phone_number_verified", json!("yes")),
        ("email_verified", json!("TRUE")),
        ("email", json!(["a@example.com"])),
        ("updated_at", json!("yesterday")),
        ("birthdate", json!(1815)),
        ("locale", json!({ "country": "GB" })),
        ("zoneinfo", json!(0)),
        ("website", json!(null)),
        ("gender", json!(1)),
        ("acr", json!(1)),
        ("amr", json!("pwd")),
        ("at_hash", json!(7)),
        ("name", json!({ "en": "Ada" })),
        ("exp", json!((NOW + 300).to_string())),
        ("iat", json!(NOW.to_string())),
    ];
    for (name, value) in odd {
        let verified = ed(&with(name, value.clone()));
        let verified = verified.unwrap_or_else(|error| panic!("{name}: {value}: {error}"));
        assert_eq!(verified.claims.text("sub"), Some("ann"), "{name}");
    }
    let said = ed(&with("auth_time", json!("1699999990"))).expect("proved").claims;
    assert_eq!(said.auth_ms(), Some(1_699_999_990_000));
}

// The proof is of the token as it came, whatever is compared of it.
#[test]
fn no_claim_can_be_changed_under_a_signature() {
    let header = json!({ "alg": "EdDSA", "kid": "ed" });
    let token = signed(&header, &claims());
    let signature = token.rsplit_once('.').expect("parts").1;
    for changed in
        [with("groups", json!(["it"])), with("sub", json!("eve")), with("address", json!("x"))]
    {
        let said = format!(
            "{}.{}.{signature}",
            encoded(header.to_string().as_bytes()),
            encoded(changed.to_string().as_bytes())
        );
        let refused = proved(&said, None);
        assert!(matches!(refused, Err(TokenRefused::Signature(_))), "{changed}: {refused:?}");
    }
}

// Finding: report 30-b22 (outline/outline#12878): a claim of another type took all signed user information away.
#[test]
fn signed_user_information_may_have_claims_of_any_type() {
    let issuer = Issuer::parse(ISSUER).expect("an issuer");
    let expected = Expected { issuer: &issuer, client_id: "us", nonce: "n-1", algorithm: None };
    let told = |header: &Value, claims: &Value| {
        verify_information(&signed(header, claims), &SIGNERS.keys, &expected, NOW_MS)
    };
    let ed = json!({ "alg": "EdDSA", "kid": "ed" });
    let mut me =
        json!({ "iss": ISSUER, "aud": "us", "sub": "ann", "groups": ["it"], "address": "1 Road" });
    assert_eq!(told(&ed, &me).map(Value::Object), Ok(me.clone()));
    let forged = json!({ "alg": "EdDSA", "kid": "ed", "x-key": "other" });
    assert!(matches!(told(&forged, &me), Err(TokenRefused::Signature(_))));
    assert!(matches!(told(&json!({ "alg": "none" }), &me), Err(TokenRefused::Algorithm(_))));
    me["aud"] = json!("them");
    assert!(matches!(told(&ed, &me), Err(TokenRefused::Audience(_))));
}
