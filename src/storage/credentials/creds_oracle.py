"""Configurations of credentials, and the credentials that botocore finds in each: the oracle of
credentials_test.c; and the services that both contact: STS (which checks signatures), SSO's portal,
a container's endpoint, an instance's metadata.

usage: creds_oracle.py FOLDER SEED COUNT

Serves until its input ends. Prints lines, values in hex:
  home PATH, then for each: setup NAME, set VARIABLE VALUE ..., profile NAME (requested by the
  program), want PLACE KEY SECRET TOKEN (PLACE none: nothing is found; error: it fails)
Exits with 77 if botocore is not installed.
"""
import hashlib
import hmac
import http.server
import json
import os
import pathlib
import random
import re
import sys
import threading
import time
import urllib.parse

FOLDER = pathlib.Path(sys.argv[1])
for name in [name for name in os.environ if name.startswith(("AWS_", "HTTP", "http"))]:
    del os.environ[name]
os.environ["HOME"] = str(FOLDER)  # before botocore: it looks at once

try:
    import botocore.credentials
    import botocore.exceptions
    import botocore.session
except ImportError:
    sys.exit(77)

LATER = "2126-01-02T03:04:05Z"


def secret_of(key):
    return "secret-of-" + key


def keys_of(*parts):
    """The access key that a service returns: other parts, other keys."""
    return "ASIA" + hashlib.sha1("|".join(map(str, parts)).encode()).hexdigest()[:16].upper()


class Services(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, code, body, kind="application/json"):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def is_signed(self, body, form):
        """Whether the signature is one by the secret of its key (the algorithm, written again)."""
        match = re.match(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d+)/([^/]+)/sts/aws4_request, ?"
                         r"SignedHeaders=([^,]+), ?Signature=(\w+)$",
                         self.headers.get("Authorization", ""))
        if not match:
            return None
        key, day, region, names, signature = match.groups()
        headers = "".join(f"{n}:{' '.join(self.headers[n].split())}\n" for n in names.split(";"))
        request = "\n".join(["POST", self.path, "", headers, names,
                             hashlib.sha256(body).hexdigest()])
        scope = f"{day}/{region}/sts/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", self.headers["X-Amz-Date"], scope,
                          hashlib.sha256(request.encode()).hexdigest()])
        by = ("AWS4" + secret_of(key)).encode()
        for part in (day, region, "sts", "aws4_request", text):
            by = hmac.new(by, part.encode(), hashlib.sha256).digest()
        return key if by.hex() == signature else None

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/token":
            self.refresh(json.loads(body))
            return
        form = dict(urllib.parse.parse_qsl(body.decode()))
        action = form["Action"]
        source = self.is_signed(body, form)
        if action == "AssumeRole" and not source:
            self.answer(403, b"<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code></Error>"
                        b"</ErrorResponse>", "text/xml")
            return
        if "refused" in form["RoleArn"]:
            self.answer(403, b"<ErrorResponse><Error><Code>AccessDenied</Code></Error>"
                        b"</ErrorResponse>", "text/xml")
            return
        name = form["RoleSessionName"]
        key = keys_of(action, form["RoleArn"], source, form.get("ExternalId"),
                      form.get("WebIdentityToken"), form.get("DurationSeconds"),
                      "" if "session-" in name else name)
        self.answer(200, f"""<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <{action}Result><AssumedRoleUser><Arn>{form["RoleArn"]}</Arn></AssumedRoleUser>
  <Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret_of(key)}</SecretAccessKey>
  <SessionToken>token+of/{key}=</SessionToken><Expiration>{LATER}</Expiration></Credentials>
  </{action}Result></{action}Response>""".encode(), "text/xml")

    def refresh(self, wish):
        """A token of SSO for another."""
        if wish["refreshToken"] == "refused":
            self.answer(400, {"error": "invalid_grant", "error_description": "secret-of-it"})
        else:
            parts = [wish[name] for name in ("clientId", "clientSecret", "grantType",
                                             "refreshToken")]
            self.answer(200, {"accessToken": keys_of("token", *parts), "expiresIn": 28800,
                              "refreshToken": "next-" + wish["refreshToken"],
                              "tokenType": "Bearer"})

    def do_PUT(self):
        good = self.path == "/latest/api/token" and \
            self.headers["x-aws-ec2-metadata-token-ttl-seconds"] == "21600"
        self.answer(200 if good else 400, b"metadata-token", "text/plain")

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        roles = "/latest/meta-data/iam/security-credentials/"
        if url.path == "/federation/credentials":
            key = keys_of("sso", query["role_name"], query["account_id"],
                          self.headers["x-amz-sso_bearer_token"])
            self.answer(200, {"roleCredentials": {
                "accessKeyId": key, "secretAccessKey": secret_of(key),
                "sessionToken": "token-of-" + key, "expiration": 4922000000000}})
        elif url.path.startswith("/container"):
            self.keys(keys_of("container", self.path, self.headers.get("Authorization")))
        elif self.headers.get("x-aws-ec2-metadata-token") != "metadata-token":
            self.answer(401, b"")
        elif url.path == roles:
            self.answer(200, b"the-role", "text/plain")
        elif url.path == roles + "the-role":
            self.keys(keys_of("instance"))
        else:
            self.answer(404, b"")

    def keys(self, key):
        self.answer(200, {"Code": "Success", "AccessKeyId": key, "SecretAccessKey": secret_of(key),
                          "Token": "token-of-" + key, "Expiration": LATER})

    def log_message(self, *_):
        pass


def process(key, more=""):
    text = json.dumps({"Version": 1, "AccessKeyId": key, "SecretAccessKey": secret_of(key)})
    return f"credential_process = /bin/echo '{text}'{more}\n"


def static(key, token=None):
    return (f"aws_access_key_id = {key}\naws_secret_access_key = {secret_of(key)}\n"
            + (f"aws_session_token = {token}\n" if token else ""))


PAST = "2020-01-01T00:00:00Z"
# Tokens of SSO near or past their end. Both botocore and we refresh them, and rewrite their files.
REFRESHED = {
    "past": {"accessToken": "t4", "expiresAt": PAST, "refreshToken": 'r"4\\',
             "clientId": "c4", "clientSecret": "s4", "registrationExpiresAt": LATER},
    "refused": {"accessToken": "t5", "expiresAt": PAST, "refreshToken": "refused",
                "clientId": "c", "clientSecret": "s", "registrationExpiresAt": LATER},
    "near": {"accessToken": "t6", "expiresAt": "soon", "refreshToken": "refused",
             "clientId": "c", "clientSecret": "s", "registrationExpiresAt": LATER},
    "unregistered": {"accessToken": "t7", "expiresAt": PAST, "refreshToken": "r7",
                     "clientId": "c", "clientSecret": "s", "registrationExpiresAt": PAST},
    "no refresh": {"accessToken": "t8", "expiresAt": PAST},
}


def cached(name):
    return FOLDER / ".aws/sso/cache" / (hashlib.sha1(name.encode()).hexdigest() + ".json")


def log_in(name):
    """As `aws sso login` left it, some time ago."""
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 850))
    cached(name).write_text(json.dumps(REFRESHED[name]).replace("soon", soon))


def named(url):
    """(name, variables, config, credentials, profile)"""
    sts = {"AWS_ENDPOINT_URL_STS": url, "AWS_DEFAULT_REGION": "eu-west-1"}
    role = "role_arn = arn:aws:iam::1:role/r\n"
    token = FOLDER / "identity"
    token.write_text("header.claims.signature+/=")
    sso = {"AWS_ENDPOINT_URL_SSO": url, "AWS_ENDPOINT_URL_SSO_OIDC": url}
    cache = FOLDER / ".aws/sso/cache"
    cache.mkdir(parents=True)
    for name, text in (("mine", {"accessToken": "sso-token", "expiresAt": LATER}),
                       ("https://old.example/start", {"accessToken": "t2", "expiresAt": LATER}),
                       ("stale", {"accessToken": "t3", "expiresAt": "2020-01-01T00:00:00Z"})):
        cached(name).write_text(json.dumps(text))
    for name in REFRESHED:
        log_in(name)
    sso_role = "sso_account_id = 123\nsso_role_name = My Role+\n"
    session = ("[sso-session mine]\nsso_region = us-east-1\n"
               "sso_start_url = https://x.example/start\n")
    env = {"AWS_ACCESS_KEY_ID": "AKE", "AWS_SECRET_ACCESS_KEY": secret_of("AKE")}
    web = {"AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "AWS_ROLE_ARN": "arn:aws:iam::1:role/w"}
    both = "[default]\n" + static("AKC")
    yield "nothing", {}, "", "", None
    yield "environment", env, both, both, None
    yield "environment with a token", {**env, "AWS_SESSION_TOKEN": "t"}, "", "", None
    yield "two tokens", {**env, "AWS_SESSION_TOKEN": "t", "AWS_SECURITY_TOKEN": "s"}, "", "", None
    yield "no secret", {"AWS_ACCESS_KEY_ID": "AKE"}, both, "", None
    yield "credentials file", {}, "", "[default]\n" + static("AKS", "tok"), None
    yield "both files", {}, both, "[default]\n" + static("AKS"), None
    yield "config file", {}, both, "", None
    yield "a profile by variable", {"AWS_PROFILE": "p"}, "", "[p]\n" + static("AKP"), None
    yield "a profile and the environment", {**env, "AWS_PROFILE": "p"}, "", "[p]\n" + static(
        "AKP"), None
    yield "a profile by name", env, "", "[p]\n" + static("AKP"), "p"
    yield "no such profile", {"AWS_PROFILE": "q"}, "[profile p]\n" + static("AKP"), "", None
    yield "quoted profile", {"AWS_PROFILE": "a b"}, "[profile 'a b']\n" + static("AKQ"), "", None
    yield "profile without the word", {"AWS_PROFILE": "p"}, "[p]\n" + static("AKP"), "", None
    yield "half of a profile", {}, "", "[default]\naws_access_key_id = AKH\n", None
    yield "upper case, colons, comments", {}, (
        "# c\n; d\n[default]\n\nAWS_Access_Key_ID: AKU\n  # e\naws_secret_access_key=" +
        secret_of("AKU") + " # no comment\n"), "", None
    yield "a section twice", {}, both + both, "", None
    yield "a name twice", {}, both + "aws_access_key_id = x\n", "", None
    yield "no section", {}, static("AKC"), "", None
    yield "no equal sign", {}, both + "nonsense\n", "", None
    yield "nested", {}, "[default]\ns3 =\n  addressing_style = path\n" + static("AKN"), "", None
    yield "process", {}, "[default]\n" + process("AKR"), "", None
    ends = "'{\"Expiration\": \"2126-01-01T00:00:00+01:00\", \"SessionToken\": \"s\", "
    yield "process with an end", {}, "[default]\n" + process("AKR").replace("'{", ends), "", None
    yield "process in the credentials file", {}, "", "[default]\n" + process("AKR"), None
    yield "process behind keys", {}, "[default]\n" + process("AKR"), both, None
    yield "process and keys in config", {}, both + process("AKR"), "", None
    yield "process that fails", {}, "[default]\ncredential_process = /bin/false\n", "", None
    yield "process that is not there", {}, "[default]\ncredential_process = /no/such\n", "", None
    yield "process of another version", {}, "[default]\n" + process("AKR").replace(
        '"Version": 1', '"Version": 2'), "", None
    yield "role of keys", sts, "[default]\n" + role + "source_profile = s\n", "[s]\n" + static(
        "AKS"), None
    yield "role with everything", sts, (
        "[default]\n" + role + "source_profile = s\nexternal_id = e x&=\nduration_seconds = 1800\n"
        "role_session_name = me@home\n"), "[s]\n" + static("AKS", "tok"), None
    yield "role of itself", sts, "[default]\n" + role + "source_profile = default\n", both, None
    yield "role of a role", sts, (
        "[default]\n" + role + "source_profile = b\n[profile b]\nrole_arn = arn:aws:iam::2:role/b\n"
        "source_profile = c\n"), "[c]\n" + static("AKS"), None
    yield "role of a process", sts, (
        "[default]\n" + role + "source_profile = b\n[profile b]\n" + process("AKR")), "", None
    yield "role of the environment", {**sts, **env, "AWS_PROFILE": "x"}, (
        "[profile x]\n" + role + "credential_source = Environment\n"), "", None
    yield "role of the environment, by name", {**sts, **env}, (
        "[profile x]\n" + role + "credential_source = Environment\n"), "", "x"
    yield "role in a circle", sts, (
        "[default]\n" + role + "source_profile = b\n[profile b]\n" + role +
        "source_profile = default\n"), "", None
    yield "role without a source", sts, "[default]\n" + role, "", None
    yield "role with two sources", sts, (
        "[default]\n" + role + "source_profile = s\ncredential_source = Environment\n"), (
        "[s]\n" + static("AKS")), None
    yield "role without a source", sts, "[default]\n" + role + "source_profile = s\n", "[t]\n", None
    yield "role of one without keys", sts, "[default]\n" + role + (
        "source_profile = s\n[profile s]\nregion = x\n"), "", None
    yield "role refused", sts, "[default]\nrole_arn = refused\nsource_profile = s\n", (
        "[s]\n" + static("AKS")), None
    yield "web identity", {**sts, **web}, "", "", None
    yield "web identity with a session", {**sts, **web, "AWS_ROLE_SESSION_NAME": "me"}, "", "", None
    yield "web identity before files", {**sts, **web}, both, both, None
    yield "web identity of a profile", sts, (
        f"[default]\n{role}web_identity_token_file = {token}\n"), "", None
    yield "role of a web identity", sts, (
        f"[default]\n{role}source_profile = b\n[profile b]\nrole_arn = arn:aws:iam::2:role/b\n"
        f"web_identity_token_file = {token}\n"), "", None
    yield "web identity without a role", {"AWS_WEB_IDENTITY_TOKEN_FILE": str(token)}, "", "", None
    yield "web identity without its file", {**sts, **web, "AWS_WEB_IDENTITY_TOKEN_FILE": "/no"}, (
        ""), "", None
    yield "SSO", sso, "[default]\nsso_session = mine\n" + sso_role + session, "", None
    yield "SSO of old", sso, ("[default]\nsso_region = us-east-1\n"
                              "sso_start_url = https://old.example/start\n" + sso_role), "", None
    yield "SSO before keys", sso, "[default]\nsso_session = mine\n" + sso_role + session, both, None
    yield "SSO without a session", sso, "[default]\nsso_session = other\n" + sso_role, "", None
    yield "SSO with half", sso, "[default]\nsso_account_id = 1\n", "", None
    yield "SSO not logged in", sso, ("[default]\nsso_region = us-east-1\n"
                                     "sso_start_url = https://no.example\n" + sso_role), "", None
    for name in REFRESHED:
        yield "SSO, " + name, sso, (f"[default]\nsso_session = {name}\n" + sso_role +
                                    session.replace("mine", name)), "", None
    yield "container", {"AWS_CONTAINER_CREDENTIALS_FULL_URI": url + "/container?a=b"}, "", "", None
    yield "container with a token", {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": url + "/container",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": "Basic abc"}, "", "", None
    yield "container with a token's file", {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": url + "/container",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": "not this",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token)}, "", "", None
    yield "container elsewhere", {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://example.com/container"}, "", "", None
    yield "container behind files", {"AWS_CONTAINER_CREDENTIALS_FULL_URI": url + "/container"}, (
        both), "", None
    yield "instance", {"AWS_EC2_METADATA_SERVICE_ENDPOINT": url,
                       "AWS_EC2_METADATA_DISABLED": "false"}, "", "", None
    yield "instance, by its profile", {"AWS_EC2_METADATA_DISABLED": "false"}, (
        f"[default]\nec2_metadata_service_endpoint = {url}/\n"), "", None
    yield "instance switched off", {"AWS_EC2_METADATA_SERVICE_ENDPOINT": url,
                                    "AWS_EC2_METADATA_DISABLED": "TRUE"}, "", "", None
    yield "role of the instance", {**sts, "AWS_EC2_METADATA_SERVICE_ENDPOINT": url,
                                   "AWS_EC2_METADATA_DISABLED": "false"}, (
        "[default]\n" + role + "credential_source = Ec2InstanceMetadata\n"), "", None


def mixed(rng):
    """Files and variables at random: what goes before what."""
    def section(name):
        text = f"[{name}]\n"
        for part in (static(f"AK{rng.randrange(10)}", rng.choice([None, "tok"])),
                     process(f"AP{rng.randrange(10)}"), "region = eu-west-1\n",
                     "aws_access_key_id =\n", "[broken\n", "s3 =\n    a = b\n"):
            if rng.random() < 0.35 and not (part.startswith(("aws_access_key_id =\n", "[")) and
                                            rng.random() < 0.8):
                text += part
        return text

    config = "".join(section(name) for name in rng.sample(
        ["default", "profile a", "profile  b ", "profile \"a\"", "a", "sso-session a"], 3))
    credentials = "".join(section(name) for name in rng.sample(["default", "a", "b"], 2))
    variables = {name: value for name, value in {
        "AWS_ACCESS_KEY_ID": "AKE", "AWS_SECRET_ACCESS_KEY": secret_of("AKE"),
        "AWS_PROFILE": rng.choice("ab"), "AWS_DEFAULT_PROFILE": rng.choice("ab"),
        "AWS_SESSION_TOKEN": ""}.items() if rng.random() < 0.3}
    return variables, config, credentials, rng.choice([None, None, "a"])


def ask(profile):
    """What botocore finds."""
    session = botocore.session.Session(profile=profile)
    try:
        if session.get_config_variable("profile"):
            session.get_scoped_config()  # as every client does: is there such a profile?
        found = botocore.credentials.create_credential_resolver(session).load_credentials()
        if found is None:
            return "none", "", "", ""
        frozen = found.get_frozen_credentials()
        return found.method, frozen.access_key, frozen.secret_key, frozen.token or ""
    except Exception:
        return "error", "", "", ""


def check_cache(theirs):
    """We left the files as botocore did: what is refreshed for its owner alone, the rest untouched,
    and nothing beside them."""
    for name, expected in theirs.items():
        ours = json.loads(cached(name).read_text())
        ends = [time.mktime(time.strptime(each.pop("expiresAt"), "%Y-%m-%dT%H:%M:%SZ"))
                for each in (ours, expected)]
        assert ours == expected and abs(ends[0] - ends[1]) < 1800, (name, ours, expected, ends)
        assert (ours["accessToken"] != REFRESHED[name]["accessToken"]) == (name == "past")
    assert cached("past").stat().st_mode & 0o777 == 0o600
    assert all(path.suffix == ".json" for path in cached("past").parent.iterdir())


def main():
    rng = random.Random(int(sys.argv[2]))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Services)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    rows = list(named(f"http://127.0.0.1:{server.server_address[1]}"))
    rows += [(f"mixed {i}", *mixed(rng)) for i in range(int(sys.argv[3]))]
    theirs = {}
    print("home", str(FOLDER).encode().hex())
    for number, (name, variables, config, credentials, profile) in enumerate(rows):
        paths = FOLDER / f"config{number}", FOLDER / f"credentials{number}"
        paths[0].write_text(config)
        paths[1].write_text(credentials)
        variables = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": str(paths[0]),
                     "AWS_SHARED_CREDENTIALS_FILE": str(paths[1]), **variables}
        os.environ.update(variables)
        want = ask(profile)
        sso = name.removeprefix("SSO, ")
        if sso in REFRESHED:  # from the same beginning
            theirs[sso] = json.loads(cached(sso).read_text())
            log_in(sso)
        print("setup", name.encode().hex())
        for key, value in variables.items():
            print("set", key, value.encode().hex())
            del os.environ[key]
        if profile:
            print("profile", profile)
        print("want", want[0], *(word.encode().hex() or "-" for word in want[1:]))
    print("end", flush=True)
    sys.stdin.read()
    check_cache(theirs)


main()
