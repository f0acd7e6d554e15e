//! The requests to each kind of registry, and the meaning of the answers.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value as Json, json};
use walferry_config::{shown_answer, shown_text};
use walferry_converter::registry::{
    Api, Guid, Id, IdLookup, Ids, RegistryRefusal, SchemaReference, SchemaRequest, Subject, difference, is_same,
    same_bytes, with_references,
};
use walferry_diagnosis::Diagnosis;

use crate::http::{self, Http, Reply};
use crate::limits::{MOST_PARTS, has_few_parts, parts_of};

/// Why there are no ids.
#[derive(Debug)]
pub(crate) enum RequestFailure {
    /// It may pass by itself, so the request is repeated.
    Trouble(Diagnosis),
    /// A repeated request would get the same answer.
    Refused(RegistryRefusal),
    /// The same: the registry lacks the schema, and registering is not allowed.
    Missing(RegistryRefusal),
}

impl From<Diagnosis> for RequestFailure {
    fn from(trouble: Diagnosis) -> Self {
        Self::Trouble(trouble)
    }
}

type Answer<T> = Result<T, RequestFailure>;

const CONFLUENT_JSON: &str = "application/vnd.schemaregistry.v1+json";

/// Looks up the ids of a schema, or registers it.
pub(crate) fn ids(http: &mut Http, api: Api, request: &SchemaRequest) -> Answer<Ids> {
    let mut answer = lookup(http, api, request);
    // Another client registered it at the same moment, or this client did, in a request whose answer was lost. So ask once more.
    if matches!(&answer, Err(RequestFailure::Refused(refusal)) if refusal.what.starts_with(EXISTS)) {
        answer = lookup(http, api, request);
    }
    match answer {
        Err(RequestFailure::Refused(refusal)) if refusal.what.starts_with(INCOMPATIBLE) => {
            Err(RequestFailure::Refused(with_difference(http, api, request, refusal)))
        }
        answer => answer,
    }
}

/// How the three kinds of refusals begin.
const EXISTS: &str = "it has another schema there: ";
const INCOMPATIBLE: &str = "the schema is incompatible with an earlier one: ";
const UNFIT: &str = "its version does not match the record: ";

/// Names the first field in which a schema differs from the newest version, because a registry may refer to fields only by number.
fn with_difference(
    http: &mut Http,
    api: Api,
    request: &SchemaRequest,
    mut refusal: RegistryRefusal,
) -> RegistryRefusal {
    let latest = SchemaRequest {
        lookup: IdLookup::Latest,
        schema: whole_of(request),
        references: Vec::new(),
        ..request.clone()
    };
    let found = match lookup(http, api, &latest) {
        Err(RequestFailure::Refused(newest)) => newest.what.strip_prefix(UNFIT).map(str::to_owned),
        // Values of JSON are the same bytes with any schema, and the schemas differ nevertheless.
        Ok(ids) => match text(http, api, Id::Global, &latest, ids) {
            Ok(Ok(Some(theirs))) => difference(request.kind, &latest.schema, &theirs),
            _ => None,
        },
        Err(_) => None,
    };
    if let Some(difference) = found {
        refusal.what.push_str("; beside the newest version, ");
        refusal.what.push_str(&shown_answer(&difference, &[]));
    }
    refusal
}

/// Name and text of each reference, and of what they refer to.
fn all(references: &[SchemaReference]) -> Vec<(String, String)> {
    let of = |reference: &SchemaReference| {
        let own = (reference.name.clone(), reference.schema.clone());
        std::iter::once(own)
            .chain(all(&reference.references))
            .collect::<Vec<_>>()
    };
    references.iter().flat_map(of).collect()
}

fn lookup(http: &mut Http, api: Api, request: &SchemaRequest) -> Answer<Ids> {
    match api {
        Api::Confluent => confluent(http, request),
        Api::ApicurioV2 => apicurio_v2(http, request),
        Api::ApicurioV3 => apicurio_v3(http, request),
    }
}

/// An answer that does not tell what the registry has under an id.
#[derive(Debug)]
pub(crate) struct Untold {
    pub(crate) trouble: Diagnosis,
    /// The client may not read it. That will not pass.
    pub(crate) is_forbidden: bool,
}

/// Whether the registry still has a schema under the id that records carry, if it tells that.
pub(crate) fn still_has(
    http: &mut Http,
    api: Api,
    id: Id,
    request: &SchemaRequest,
    ids: Ids,
) -> Answer<Result<bool, Untold>> {
    let found = match text(http, api, id, request, ids)? {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(Ok(false)),
        Err(untold) => return Ok(Err(untold)),
    };
    Ok(Ok(found.is_empty()
        || match is_chosen(request) {
            false => is_same(request.kind, &request.schema, &found),
            // It may have more members than ours.
            true => same_bytes(request.kind, &whole_of(request), &found).is_ok(),
        }))
}

/// Whether the registry chooses the version. Then its text is not ours.
fn is_chosen(request: &SchemaRequest) -> bool {
    match request.lookup {
        IdLookup::Latest | IdLookup::Id(_) => true,
        IdLookup::Register { if_exists, .. } => if_exists == RETURN,
        IdLookup::Find { .. } => false,
    }
}

/// With this word, Apicurio's second interface returns the version that an artifact has, whatever is registered.
const RETURN: &str = "RETURN";

/// Our schema with the types that it refers to.
fn whole_of(request: &SchemaRequest) -> String {
    with_references(request.kind, &request.schema, &all(&request.references))
}

/// The text of a schema in the registry. `None` if it has none. In a version that the registry chose, the types of other subjects are
/// written out.
fn text(
    http: &mut Http,
    api: Api,
    id: Id,
    request: &SchemaRequest,
    ids: Ids,
) -> Answer<Result<Option<String>, Untold>> {
    let path = match (api, is_chosen(request), id) {
        (Api::Confluent, ..) => format!("/schemas/ids/{}?subject={}", ids.content, encoded(&request.subject.id)),
        (Api::ApicurioV2 | Api::ApicurioV3, false, Id::Content) => format!("/ids/contentIds/{}", ids.content),
        (Api::ApicurioV2 | Api::ApicurioV3, false, Id::Global) => format!("/ids/globalIds/{}", ids.global),
        (Api::ApicurioV2, true, _) => format!("/ids/globalIds/{}?dereference=true", ids.global),
        (Api::ApicurioV3, true, _) => format!("/ids/globalIds/{}?references=DEREFERENCE", ids.global),
    };
    let reply = http.send(&get(path))?;
    Ok(match (reply.status, api) {
        (200, Api::Confluent) => Ok(Some(whole(http, request, &reply.json())?)),
        (200, _) if !has_few_parts(&reply.body) => return Err(too_large(request)),
        (200, _) => Ok(Some(reply.body)),
        (404, _) if is_registrys_own(&reply) => Ok(None),
        (status, _) => Err(Untold {
            trouble: odd(&reply),
            is_forbidden: matches!(status, 401 | 403),
        }),
    })
}

/// The schema of an answer of Confluent's interface, with the types of other subjects written out if the registry chose the version.
fn whole(http: &mut Http, request: &SchemaRequest, answer: &Json) -> Answer<String> {
    let schema = answer["schema"].as_str().unwrap_or_default();
    let mut found: Vec<(String, String)> = Vec::new();
    let (mut bytes, mut parts) = (schema.len(), parts_of(schema));
    let mut open = match is_chosen(request) {
        true => answer["references"].as_array().cloned().unwrap_or_default(),
        false => Vec::new(),
    };
    while let Some(reference) = open.pop() {
        let (name, subject, version) = (&reference["name"], &reference["subject"], &reference["version"]);
        let (Some(name), Some(subject), Some(version)) = (name.as_str(), subject.as_str(), version.as_i64()) else {
            continue;
        };
        if found.len() >= MOST_REFERENCES || found.iter().any(|(known, _)| known == name) {
            continue;
        }
        let reply = http.send(&get(format!("/subjects/{}/versions/{version}", encoded(subject))))?;
        let json = taken(reply, request)?;
        let text = json["schema"].as_str().unwrap_or_default();
        (bytes, parts) = (bytes + name.len() + text.len(), parts + parts_of(text));
        if bytes > MOST_REFERENCED_BYTES || parts > MOST_PARTS {
            return Err(too_large(request));
        }
        found.push((name.to_owned(), text.to_owned()));
        let more = json["references"].as_array().cloned().unwrap_or_default();
        open.extend(more.into_iter().take(MOST_REFERENCES));
    }
    if parts > MOST_PARTS {
        return Err(too_large(request));
    }
    Ok(with_references(request.kind, schema, &found))
}

/// Maximum number of types of other subjects that are fetched for one schema.
const MOST_REFERENCES: usize = 1_000;
/// Maximum size of a schema with those types, in bytes.
const MOST_REFERENCED_BYTES: usize = 4 * 1024 * 1024;

fn too_large(request: &SchemaRequest) -> RequestFailure {
    RequestFailure::Trouble(http::trouble(
        format!(
            "the schema registry has a schema for {} that is too large: with the types that it refers to, it has more than \
             {MOST_PARTS} values or {MOST_REFERENCED_BYTES} bytes",
            request.subject
        ),
        Some("look at the newest version of the subject; no table of Postgres has so large a schema".to_owned()),
    ))
}

fn confluent(http: &mut Http, request: &SchemaRequest) -> Answer<Ids> {
    let subject = encoded(&request.subject.id);
    let ask = match &request.lookup {
        IdLookup::Register { normalize, .. } => {
            let path = format!("/subjects/{subject}/versions{}", normalized(*normalize));
            post(path, confluent_body(request))
        }
        IdLookup::Find { normalize } => {
            let path = format!("/subjects/{subject}{}", normalized(*normalize));
            post(path, confluent_body(request))
        }
        IdLookup::Latest => get(format!("/subjects/{subject}/versions/latest")),
        IdLookup::Id(id) => get(format!("/schemas/ids/{id}?subject={subject}")),
    };
    let reply = http.send(&ask)?;
    let json = taken(reply, request)?;
    let id = match request.lookup {
        IdLookup::Id(id) => id,
        // Records have four bytes for it.
        _ => usable(&json["id"])
            .filter(|id| i32::try_from(*id).is_ok())
            .ok_or_else(|| no_id(request))?,
    };
    if is_chosen(request) {
        compare(request, &whole(http, request, &json)?)?;
    }
    Ok(Ids {
        content: id,
        global: id,
        guid: json["guid"].as_str().and_then(guid),
    })
}

/// The bytes of a GUID such as `a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11`.
fn guid(text: &str) -> Option<Guid> {
    let digits: String = text.split('-').collect();
    // A sign would be read, too.
    let is_guid = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| is_guid)?;
    Some(number.to_be_bytes())
}

fn confluent_body(request: &SchemaRequest) -> String {
    let mut body = json!({ "schema": request.schema });
    // Confluent's registry assumes Avro if no type is given, and older ones know only Avro.
    if request.kind.as_str() != "AVRO" {
        body["schemaType"] = request.kind.as_str().into();
    }
    body.to_string()
}

fn normalized(normalize: bool) -> &'static str {
    if normalize { "?normalize=true" } else { "" }
}

fn apicurio_v2(http: &mut Http, request: &SchemaRequest) -> Answer<Ids> {
    let json = apicurio_v2_meta(http, request)?;
    let ids = apicurio_ids(&json, request)?;
    compare_chosen(http, Api::ApicurioV2, request, ids)?;
    Ok(ids)
}

/// What the second interface says of a version. It is registered first if that is asked for, after what it refers to.
fn apicurio_v2_meta(http: &mut Http, request: &SchemaRequest) -> Answer<Json> {
    let subject = &request.subject;
    let artifact = format!("{}/artifacts/{}", group(subject), encoded(&subject.id));
    let ask = match &request.lookup {
        IdLookup::Register { normalize, if_exists } => {
            let path = format!(
                "{}/artifacts?ifExists={if_exists}&canonical={normalize}",
                group(subject)
            );
            let references = registered_references(http, request, apicurio_v2_meta)?;
            let mut ask = match references.is_empty() {
                true => post(path, request.schema.clone()),
                false => {
                    let body = json!({ "content": request.schema, "references": references });
                    post_as("application/create.extended+json", path, body.to_string())
                }
            };
            ask.headers.push(("x-registry-artifactid", subject.id.clone()));
            ask.headers
                .push(("x-registry-artifacttype", request.kind.as_str().to_owned()));
            if let Some(version) = &subject.version {
                ask.headers.push(("x-registry-version", version.clone()));
            }
            ask
        }
        IdLookup::Find { .. } => post(format!("{artifact}/meta?canonical=true"), request.schema.clone()),
        IdLookup::Latest | IdLookup::Id(_) => get(match &subject.version {
            Some(version) => format!("{artifact}/versions/{}/meta", encoded(version)),
            None => format!("{artifact}/meta"),
        }),
    };
    let reply = http.send(&ask)?;
    taken(reply, request)
}

/// A value of an answer, if it is a short text.
fn short(value: &Json) -> Json {
    const MOST: usize = 1_000;
    let text = value.as_str().filter(|text| text.len() <= MOST);
    text.map_or(Json::Null, Json::from)
}

/// Registers the types that a schema refers to, and returns the references to them.
fn registered_references(
    http: &mut Http,
    request: &SchemaRequest,
    register: fn(&mut Http, &SchemaRequest) -> Answer<Json>,
) -> Answer<Vec<Json>> {
    let mut references = Vec::new();
    for reference in &request.references {
        let part = SchemaRequest {
            subject: reference.subject.clone(),
            schema: reference.schema.clone(),
            references: reference.references.clone(),
            ..request.clone()
        };
        let meta = match http.parts.get(reference) {
            Some(known) => known.clone(),
            None => {
                let meta = register(http, &part)?;
                let meta = json!({ "groupId": short(&meta["groupId"]), "version": short(&meta["version"]) });
                http.parts.insert(reference.clone(), meta.clone());
                meta
            }
        };
        references.push(json!({
            "groupId": meta["groupId"],
            "artifactId": reference.subject.id,
            "version": meta["version"],
            "name": reference.name,
        }));
    }
    Ok(references)
}

fn apicurio_v3(http: &mut Http, request: &SchemaRequest) -> Answer<Ids> {
    let json = apicurio_v3_meta(http, request)?;
    let ids = apicurio_ids(&json, request)?;
    compare_chosen(http, Api::ApicurioV3, request, ids)?;
    Ok(ids)
}

/// The same with the third interface.
fn apicurio_v3_meta(http: &mut Http, request: &SchemaRequest) -> Answer<Json> {
    let subject = &request.subject;
    let artifact = format!("{}/artifacts/{}", group(subject), encoded(&subject.id));
    let ask = match &request.lookup {
        IdLookup::Register { normalize, if_exists } => {
            let path = format!(
                "{}/artifacts?ifExists={if_exists}&canonical={normalize}",
                group(subject)
            );
            let references = registered_references(http, request, apicurio_v3_meta)?;
            let content =
                json!({ "content": request.schema, "contentType": "application/json", "references": references });
            let mut version = json!({ "content": content });
            if let Some(name) = &subject.version {
                version["version"] = name.as_str().into();
            }
            let body = json!({
                "artifactId": subject.id,
                "artifactType": request.kind.as_str(),
                "firstVersion": version,
            });
            post(path, body.to_string())
        }
        IdLookup::Find { normalize } => {
            let group = encoded(subject.group.as_deref().unwrap_or("default"));
            let path = format!(
                "/search/versions?groupId={group}&artifactId={}&artifactType={}&canonical={normalize}&orderby=globalId&order=desc&limit=1",
                encoded(&subject.id),
                request.kind.as_str()
            );
            post(path, request.schema.clone())
        }
        IdLookup::Latest | IdLookup::Id(_) => {
            let version = subject.version.as_deref().unwrap_or("branch=latest");
            get(format!("{artifact}/versions/{}", encoded(version)))
        }
    };
    let reply = http.send(&ask)?;
    let json = taken(reply, request)?;
    match request.lookup {
        IdLookup::Register { .. } if json["version"].is_object() => Ok(json["version"].clone()),
        IdLookup::Register { .. } => Err(no_id(request)),
        IdLookup::Find { .. } => newest(&json, request),
        IdLookup::Latest | IdLookup::Id(_) => Ok(json),
    }
}

/// The first version in the answer to a search. The newest comes first.
fn newest(json: &Json, request: &SchemaRequest) -> Answer<Json> {
    let versions = json["versions"].as_array().ok_or_else(|| no_id(request))?;
    versions.first().cloned().ok_or_else(|| {
        RequestFailure::Missing(RegistryRefusal {
            what: "it has no such schema".to_owned(),
            hint: Some(not_registered().to_owned()),
        })
    })
}

fn group(subject: &Subject) -> String {
    format!("/groups/{}", encoded(subject.group.as_deref().unwrap_or("default")))
}

/// An id. No registry gives one below 0.
fn usable(id: &Json) -> Option<i64> {
    id.as_i64().filter(|id| *id >= 0)
}

fn apicurio_ids(json: &Json, request: &SchemaRequest) -> Answer<Ids> {
    let id = |name: &str| usable(&json[name]).ok_or_else(|| no_id(request));
    Ok(Ids {
        content: id("contentId")?,
        global: id("globalId")?,
        guid: None,
    })
}

/// Compares a schema that the registry has chosen with that of the record.
fn compare_chosen(http: &mut Http, api: Api, request: &SchemaRequest, ids: Ids) -> Answer<()> {
    if !is_chosen(request) {
        return Ok(());
    }
    match text(http, api, Id::Global, request, ids)? {
        Ok(Some(theirs)) => compare(request, &theirs),
        // It was removed between the two requests.
        Ok(None) => Err(no_id(request)),
        // The same log-in was allowed to register, so it lacks a right. Nothing else needs that right.
        Err(untold) if untold.is_forbidden && matches!(request.lookup, IdLookup::Register { .. }) => {
            Err(RequestFailure::Refused(RegistryRefusal {
                what: format!(
                    "the version that it returned may not be read, so it cannot be compared with the record: {}",
                    untold.trouble.text
                ),
                hint: Some(MAY_NOT_READ.to_owned()),
            }))
        }
        Err(untold) => Err(RequestFailure::Trouble(untold.trouble)),
    }
}

const MAY_NOT_READ: &str = "grant the converter's log-in the right to read schemas (GET /ids/globalIds/…), or let the converter add a version: \
                            remove apicurio.registry.auto-register.if-exists";

fn compare(request: &SchemaRequest, theirs: &str) -> Answer<()> {
    let hint = match request.lookup {
        IdLookup::Register { .. } => {
            "let the converter add a version: remove apicurio.registry.auto-register.if-exists, or set it to RETURN_OR_UPDATE"
        }
        _ => "register a matching version, or let the converter register one",
    };
    same_bytes(request.kind, &whole_of(request), theirs).map_err(|difference| {
        RequestFailure::Refused(RegistryRefusal {
            what: format!("{UNFIT}{}", shown_answer(&difference, &[])),
            hint: Some(hint.to_owned()),
        })
    })
}

/// The JSON of an answer that gives what was asked for.
fn taken(reply: Reply, request: &SchemaRequest) -> Answer<Json> {
    match reply.status {
        200..=299 => Ok(reply.json()),
        404 if is_registrys_own(&reply) => Err(RequestFailure::Missing(RegistryRefusal {
            what: format!("it has no such schema: {}", message_of(&reply)),
            hint: Some(not_registered().to_owned()),
        })),
        // The answer comes from a proxy whose registry is down, or from something that is no registry.
        // A failed log-in is not the record's fault either, so the record must not be set aside.
        // Nor is a redirect.
        300..=399 | 401 | 403 | 404 | 408 | 425 | 429 | 500.. => Err(RequestFailure::Trouble(odd(&reply))),
        // Apicurio uses the same status if the artifact or its version exists already.
        409 if reply.json()["name"]
            .as_str()
            .is_some_and(|name| name.ends_with("AlreadyExistsException")) =>
        {
            Err(RequestFailure::Refused(RegistryRefusal {
                what: format!("{EXISTS}{}", message_of(&reply)),
                hint: Some(
                    "let the converter add a version: remove apicurio.registry.auto-register.if-exists and \
                     apicurio.registry.artifact.version"
                        .to_owned(),
                ),
            }))
        }
        _ if is_incompatible(&reply) => Err(RequestFailure::Refused(RegistryRefusal {
            what: format!("{INCOMPATIBLE}{}", message_of(&reply)),
            hint: Some(format!(
                "change the table so that the schema is compatible, or relax the compatibility mode of {} in the registry",
                request.subject
            )),
        })),
        _ if breaks_a_rule(&reply) => Err(RequestFailure::Refused(RegistryRefusal {
            what: format!("a rule of the registry forbids the schema: {}", message_of(&reply)),
            hint: Some(format!(
                "look at the rules for validity and integrity, which {}, its group or the whole registry may have",
                request.subject
            )),
        })),
        status => Err(RequestFailure::Refused(RegistryRefusal {
            what: format!("it answers {status} {}", message_of(&reply)),
            hint: None,
        })),
    }
}

const fn not_registered() -> &'static str {
    "register the schema, or let the converter do so: auto.register.schemas=true, with Apicurio apicurio.registry.auto-register=true"
}

/// Whether the registry forbids the schema beside the earlier ones. Apicurio answers so for any of its rules, 3 with 400 unless it is told
/// to keep the codes of Apicurio 2.
fn is_incompatible(reply: &Reply) -> bool {
    match breaks_a_rule(reply) {
        true => message_of(reply).contains("ncompatible"),
        false => reply.status == 409,
    }
}

/// Whether Apicurio says so.
fn breaks_a_rule(reply: &Reply) -> bool {
    matches!(reply.status, 400 | 409) && reply.json()["name"] == "RuleViolationException"
}

/// Whether a 404 means that the registry lacks a subject or a schema. A proxy may also answer 404, and so does the registry for an
/// unknown path.
fn is_registrys_own(reply: &Reply) -> bool {
    let json = reply.json();
    // Confluent's codes for a subject, a version and a schema that are not found.
    let is_confluents = json["error_code"]
        .as_i64()
        .is_some_and(|code| (40_401..=40_499).contains(&code));
    // Apicurio names its exception, such as `ArtifactNotFoundException`. The bare name is that of an unknown path.
    let is_apicurios = json["name"]
        .as_str()
        .and_then(|name| name.strip_suffix("NotFoundException"))
        .is_some_and(|what| !what.is_empty());
    is_confluents || is_apicurios
}

/// The registry's message, with its remarks on single fields. Nothing of a body that no registry has written is shown: whoever may write a
/// configuration may name any URL that the process reaches, and would read what answers there.
fn message_of(reply: &Reply) -> String {
    let json = reply.json();
    let text = |value: &Json| value.as_str().map(str::to_owned);
    let is_confluents = json["error_code"].is_i64();
    let is_apicurios = json["name"].as_str().is_some_and(|name| name.ends_with("Exception"));
    if !is_confluents && !is_apicurios {
        return match reply.body.trim() {
            "" => String::new(),
            _ => "(its body is not of the form that schema registries have, and is not shown)".to_owned(),
        };
    }
    let mut words = text(&json["message"])
        .or_else(|| text(&json["title"]))
        .unwrap_or_default();
    // Apicurio's interface 2 gives an exception that is not in its message.
    if let Some(detail) = text(&json["detail"]).filter(|detail| !detail.contains(&words)) {
        words.push_str(&format!(" {detail}"));
    }
    for cause in json["causes"].as_array().into_iter().flatten() {
        let parts = [text(&cause["description"]), text(&cause["context"])];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        words.push_str(&format!("; {}", parts.join(" at ")));
    }
    reply.excerpt(&words)
}

pub(crate) fn odd(reply: &Reply) -> Diagnosis {
    if let Some(location) = &reply.location {
        return http::trouble(
            format!(
                "the schema registry at {} answers {} and redirects to {}",
                shown_text(&reply.url),
                reply.status,
                reply.excerpt(location)
            ),
            Some(
                "set the URL of the registry to the one where it is; redirects are followed only to the same host and port, because they would \
                 take the log-in and the schemas to another server"
                    .to_owned(),
            ),
        );
    }
    http::trouble(
        format!(
            "the schema registry at {} answers {} {}",
            shown_text(&reply.url),
            reply.status,
            message_of(reply)
        ),
        Some(match reply.status {
            401 | 403 => "check the user name, password or token of the converter, and its permissions".to_owned(),
            404 => "check its URL; if it is correct, something between Walferry and the registry blocks the connection"
                .to_owned(),
            _ => "check the registry's log; nothing is lost meanwhile".to_owned(),
        }),
    )
}

fn no_id(request: &SchemaRequest) -> RequestFailure {
    RequestFailure::Trouble(http::trouble(
        format!("the schema registry's answer has no id for {}", request.subject),
        Some("check its URL".to_owned()),
    ))
}

pub(crate) fn get(path: String) -> http::Request {
    http::Request {
        path,
        headers: vec![("accept", format!("{CONFLUENT_JSON}, application/json, */*;q=0.5"))],
        body: None,
    }
}

fn post(path: String, body: String) -> http::Request {
    // Apicurio's own interface takes the schema itself.
    let content = match path.starts_with("/subjects/") {
        true => CONFLUENT_JSON,
        false => "application/json",
    };
    post_as(content, path, body)
}

fn post_as(content: &str, path: String, body: String) -> http::Request {
    http::Request {
        path,
        headers: vec![
            ("accept", format!("{CONFLUENT_JSON}, application/json")),
            ("content-type", content.to_owned()),
        ],
        body: Some(body),
    }
}

/// A part of a path or of a query.
fn encoded(text: &str) -> String {
    const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_parts_of_paths() {
        assert_eq!(encoded("shop.t-value_~ 1/ü%+"), "shop.t-value_~%201%2F%C3%BC%25%2B");
    }
}
