"""Services of Google and Azure that issue tokens, and configurations that use them, for
credentials_test.c.

usage: token_services.py FOLDER

Prints lines like creds_oracle.py; each token names the request that it was issued for, so that a
wrong request gets another token. If google-auth is installed, it must find the same token. Serves
until its input ends.
"""
import base64
import hashlib
import http.server
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import urllib.parse

FOLDER = pathlib.Path(sys.argv[1])
READ_WRITE = "https://www.googleapis.com/auth/devstorage.read_write"
IAM = "https://www.googleapis.com/auth/iam"  # all that impersonation takes
URN = "urn:ietf:params:oauth:"


def token_of(*parts):
    return "token-" + hashlib.sha1("|".join(map(str, parts)).encode()).hexdigest()


def unpack(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Key:
    """A key of RSA, made by openssl; signatures are checked here, by RFC 8017, 8.2.2."""

    def __init__(self):
        self.pem = subprocess.run(["openssl", "genrsa", "2048"], check=True, capture_output=True,
                                  text=True).stdout
        modulus = subprocess.run(["openssl", "rsa", "-noout", "-modulus"], input=self.pem,
                                 check=True, capture_output=True, text=True).stdout
        self.modulus = int(modulus.strip().partition("=")[2], 16)

    def claims(self, assertion):
        signed, _, signature = assertion.rpartition(".")
        plain = pow(int.from_bytes(unpack(signature), "big"), 65537, self.modulus)
        prefix = bytes.fromhex("3031300d060960864801650304020105000420")
        want = prefix + hashlib.sha256(signed.encode()).digest()
        want = b"\0\1" + b"\xff" * (256 - 3 - len(want)) + b"\0" + want
        if plain.to_bytes(256, "big") != want:
            return None
        header, claims = (json.loads(unpack(part)) for part in signed.split("."))
        fresh = abs(claims["iat"] - time.time()) < 600 and claims["exp"] - claims["iat"] == 3600
        good = header == {"alg": "RS256", "typ": "JWT", "kid": "key-1"} and fresh
        return claims if good else None


class Services(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, code, reply):
        body = json.dumps(reply).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Metadata-Flavor", "Google")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def give(self, *parts):
        self.answer(200, {"access_token": token_of(*parts), "expires_in": 3600,
                          "token_type": "Bearer"})

    def refuse(self):
        self.answer(400, {"error": "invalid_grant", "error_description": "canary0secret"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.path.endswith(":generateAccessToken"):
            wish = json.loads(body)
            self.answer(200, {
                "accessToken": token_of("as", self.headers["Authorization"], wish["scope"],
                                        wish["lifetime"], *(wish["delegates"] or [])),
                "expireTime": "2126-01-02T03:04:05Z"})
            return
        form = dict(urllib.parse.parse_qsl(body))
        kind = form["grant_type"]
        if kind == URN + "grant-type:jwt-bearer":
            claims = self.server.key.claims(form["assertion"])
            if claims and claims["aud"].endswith(self.path):
                self.give("service", claims["iss"], claims["scope"])
            else:
                self.refuse()
        elif form.get("refresh_token") == "refused":
            self.refuse()
        else:
            self.give(self.path, *sorted(form.items()))

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = sorted(urllib.parse.parse_qsl(url.query))
        if url.path == "/closed" and self.headers.get("Authorization") != "Bearer of-github":
            self.answer(401, {})
        elif url.path in ("/subject", "/closed"):
            self.answer(200, {"my_token": "subject-of-url"})
        elif url.path.startswith("/computeMetadata/v1/instance/service-accounts/default"):
            if self.headers.get("Metadata-Flavor") != "Google":
                self.answer(403, {})
            elif url.path.endswith("/token"):
                self.give("machine", dict(query).get("scopes"))
            else:
                self.answer(200, {"email": "me@x", "scopes": [], "aliases": []})
        elif url.path == "/metadata/identity/oauth2/token":
            if self.headers.get("Metadata") != "true":
                self.answer(400, {})
                return
            self.answer(200, {"access_token": token_of("machine", *query), "expires_in": "3600",
                              "expires_on": str(int(time.time()) + 3600)})
        elif url.path == "/service" and self.headers.get("X-IDENTITY-HEADER") == "the-header":
            self.answer(200, {"access_token": token_of("service", *query),
                              "expires_on": int(time.time()) + 3600})
        else:
            self.answer(404, {})

    def log_message(self, *_):
        pass


def google(url, key):
    """(name, variables, file or None, place, token); a file stands where the variable says."""
    user = {"type": "authorized_user", "client_id": "ci", "client_secret": "c s&=",
            "refresh_token": "1//rt", "token_uri": url + "/token"}
    service = {"type": "service_account", "client_email": "sa@x.iam", "private_key": key.pem,
               "private_key_id": "key-1", "token_uri": url + "/token", "client_id": "5"}
    subject = FOLDER / "subject"
    subject.write_text("subject-of-file")
    inside = FOLDER / "subject.json"
    inside.write_text(json.dumps({"my_token": "subject-in-json"}))
    external = {"type": "external_account", "audience": "//iam.googleapis.com/projects/1/x",
                "subject_token_type": URN + "token-type:jwt", "token_url": url + "/sts"}
    form = {"grant_type": URN + "grant-type:token-exchange", "audience": external["audience"],
            "requested_token_type": URN + "token-type:access_token",
            "subject_token_type": external["subject_token_type"], "scope": READ_WRITE}

    def exchanged(token, **more):
        return token_of("/sts", *sorted({**form, "subject_token": token, **more}.items()))

    fields = {"grant_type": "refresh_token", "client_id": "ci", "client_secret": "c s&=",
             "refresh_token": "1//rt"}
    refreshed = token_of("/token", *sorted(fields.items()))
    place = "application-credentials"
    yield "nothing", {}, None, "none", ""
    yield "user", {}, user, place, refreshed
    yield "service account", {}, service, place, token_of("service", "sa@x.iam", READ_WRITE)
    source = {"credential_source": {"file": str(subject)}}
    yield "external, file", {}, {**external, **source}, place, exchanged("subject-of-file")
    how = {"type": "json", "subject_token_field_name": "my_token"}
    yield "external, JSON", {}, {**external, "credential_source": {
        "file": str(inside), "format": how}}, place, exchanged("subject-in-json")
    yield "external, URL", {}, {**external, "credential_source": {
        "url": url + "/subject", "format": how}}, place, exchanged("subject-of-url")
    other = url + "/v1/projects/-/serviceAccounts/a@x:generateAccessToken"
    yield "external, as another", {}, {
        **external, **source, "service_account_impersonation_url": other}, place, token_of(
        "as", "Bearer " + exchanged("subject-of-file", scope=IAM), [READ_WRITE], "3600s")
    closed = {"url": url + "/closed", "format": how,
              "headers": {"Authorization": "Bearer of-github"}}
    yield "external, URL with a header", {}, {**external, "credential_source": closed}, place, (
        exchanged("subject-of-url"))
    yield "external, as another for a while", {}, {
        **external, **source, "service_account_impersonation_url": other,
        "service_account_impersonation": {"token_lifetime_seconds": 600}}, place, token_of(
        "as", "Bearer " + exchanged("subject-of-file", scope=IAM), [READ_WRITE], "600s")
    another = {"type": "impersonated_service_account", "service_account_impersonation_url": other}
    yield "user as another", {}, {**another, "source_credentials": user}, place, token_of(
        "as", "Bearer " + refreshed, [READ_WRITE], "3600s")
    yield "account as another", {}, {**another, "source_credentials": service, "delegates": [
        "b@x", 'c"@x']}, place, token_of(
        "as", "Bearer " + token_of("service", "sa@x.iam", IAM), [READ_WRITE], "3600s", "b@x",
        'c"@x')
    outer = {**another, "source_credentials": {**external, **source}}
    asks = "Bearer " + exchanged("subject-of-file", scope=IAM)
    yield "external as another", {}, outer, place, token_of("as", asks, [READ_WRITE], "3600s")
    outer["source_credentials"] |= {"service_account_impersonation_url": other}
    yield "external, as another, as another", {}, outer, place, token_of(
        "as", "Bearer " + token_of("as", asks, [IAM], "3600s"), [READ_WRITE], "3600s")
    plain = {**closed, "url": closed["url"].replace("127.0.0.1", "0.0.0.0")}  # not known as ours
    yield "a header in plain text", {}, {**external, "credential_source": plain}, "error", ""
    yield "another of another", {}, {**another, "source_credentials": {
        **another, "source_credentials": user}}, "error", ""
    yield "another without source credentials", {}, another, "error", ""
    yield "machine", {"NO_GCE_CHECK": "", "GCE_METADATA_HOST": url[7:],
                      "GCE_METADATA_IP": url[7:]}, None, "metadata-server", token_of(
        "machine", READ_WRITE)
    yield "refused", {}, {**user, "refresh_token": "refused"}, "error", ""
    yield "another key", {}, {**service, "private_key": Key().pem}, "error", ""
    yield "no key", {}, {**service, "private_key": "none"}, "error", ""
    yield "no type", {}, {"client_id": "x"}, "error", ""
    yield "unknown type", {}, {"type": "gdch"}, "error", ""
    yield "plain text", {}, {**user, "token_uri": "http://192.0.2.1/token"}, "error", ""
    yield "a program", {}, {**external, "credential_source": {"executable": {}}}, "error", ""
    yield "no file", {"GOOGLE_APPLICATION_CREDENTIALS": "/no/such"}, None, "error", ""


def azure(url):
    """(name, variables, place, key, secret, token)"""
    federated = FOLDER / "federated"
    federated.write_text("a.b.c\n")
    entra = {"AZURE_TENANT_ID": "t-1", "AZURE_CLIENT_ID": "c-1", "AZURE_AUTHORITY_HOST": url + "/"}
    form = {"grant_type": "client_credentials", "client_id": "c-1",
            "scope": "https://storage.azure.com/.default"}
    host = {"AZURE_POD_IDENTITY_AUTHORITY_HOST": url}
    query = [("api-version", "2018-02-01"), ("resource", "https://storage.azure.com/")]
    text = "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=a2V5+/==;EndpointSuffix=x"
    sas = "sv=2022-11-02&ss=b&sig=ab%2Bc%3D"
    assertion = {"client_assertion": "a.b.c",
                 "client_assertion_type": URN + "client-assertion-type:jwt-bearer"}
    path = "/t-1/oauth2/v2.0/token"
    key = {"AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_KEY": "a2V5=="}
    yield "connection string", {"AZURE_STORAGE_CONNECTION_STRING": text}, "connection-string", (
        "acc"), "a2V5+/==", ""
    yield "connection string, SAS", {"AZURE_STORAGE_CONNECTION_STRING":
                                     f"BlobEndpoint=https://x;SharedAccessSignature={sas}"}, (
        "connection-string"), "", "", sas
    yield "connection string, nothing", {"AZURE_STORAGE_CONNECTION_STRING": "a=b"}, "error", (
        ""), "", ""
    yield "key", {**key, **entra, "AZURE_CLIENT_SECRET": "x"}, "account-key", "acc", "a2V5==", ""
    yield "key, by other names", {"AZURE_STORAGE_ACCOUNT_NAME": "acc",
                                  "AZURE_STORAGE_ACCOUNT_KEY": "a2V5=="}, "account-key", "acc", (
        "a2V5=="), ""
    yield "key without account", {"AZURE_STORAGE_KEY": "a2V5=="}, "error", "", "", ""
    yield "SAS", {"AZURE_STORAGE_SAS_TOKEN": "?" + sas}, "sas-token", "", "", sas
    yield "SAS without signature", {"AZURE_STORAGE_SAS_TOKEN": "sv=1"}, "error", "", "", ""
    yield "client secret", {**entra, "AZURE_CLIENT_SECRET": "s e&c"}, "environment", "", "", (
        token_of(path, *sorted({**form, "client_secret": "s e&c"}.items())))
    yield "workload", {**entra, "AZURE_FEDERATED_TOKEN_FILE": str(federated)}, (
        "workload-identity"), "", "", token_of(path, *sorted({**form, **assertion}.items()))
    yield "workload without its file", {**entra, "AZURE_FEDERATED_TOKEN_FILE": "/no"}, "error", (
        ""), "", ""
    yield "machine", host, "managed-identity", "", "", token_of("machine", *query)
    yield "machine, of a client", {**host, "AZURE_CLIENT_ID": "c-1"}, "managed-identity", "", "", (
        token_of("machine", *sorted([*query, ("client_id", "c-1")])))
    yield "service", {"IDENTITY_ENDPOINT": url + "/service", "IDENTITY_HEADER": "the-header"}, (
        "managed-identity"), "", "", token_of("service", ("api-version", "2019-08-01"), query[1])
    yield "plain text", {**entra, "AZURE_CLIENT_SECRET": "x", "AZURE_AUTHORITY_HOST":
                         "http://192.0.2.1"}, "error", "", "", ""


def ask_google(variables, file, want):
    """google-auth finds the same token, where it is installed."""
    try:
        import google.auth
        import google.auth.transport.requests
    except ImportError:
        return
    if file["type"] == "impersonated_service_account":
        return  # it asks Google's own host, whatever the file names
    os.environ.update(variables)
    user = file["type"] == "authorized_user"
    if file["type"] == "external_account":  # default() asks the network for the project's name
        from google.auth import identity_pool
        credentials = identity_pool.Credentials.from_info(file, scopes=[READ_WRITE])
    else:
        credentials, _ = google.auth.default(scopes=None if user else [READ_WRITE])
    if user:
        credentials._token_uri = file["token_uri"]  # it is not read from the file
    credentials.refresh(google.auth.transport.requests.Request())
    assert credentials.token == want, (variables, credentials.token, want)
    for name in variables:
        del os.environ[name]


def tell(service, name, variables, *want):
    print("setup", f"{service}: {name}".encode().hex())
    print("service", service)
    for key, value in variables.items():
        print("set", key, value.encode().hex())
    print("want", want[0], *(word.encode().hex() or "-" for word in want[1:]))


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Services)
    server.daemon_threads = True
    server.key = Key()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    print("home", str(FOLDER).encode().hex())
    for number, (name, variables, file, place, token) in enumerate(google(url, server.key)):
        variables = {"NO_GCE_CHECK": "true", **variables}
        if file:
            path = FOLDER / f"google{number}.json"
            path.write_text(json.dumps(file))
            variables["GOOGLE_APPLICATION_CREDENTIALS"] = str(path)
        if token and place == "application-credentials":
            ask_google(variables, file, token)
        tell("google", name, variables, place, "", "", token)
    tell("google", "HMAC", {"GS_ACCESS_KEY_ID": "GOOG1", "GS_SECRET_ACCESS_KEY": "s"}, "hmac",
         "GOOG1", "s", "")
    cloud = FOLDER / "gcloud"
    cloud.mkdir()
    last = sorted(FOLDER.glob("google1.json"))[0]
    (cloud / "application_default_credentials.json").write_text(last.read_text())
    tell("google", "gcloud", {"CLOUDSDK_CONFIG": str(cloud)}, "gcloud", "", "", token_of(
        "/token", ("client_id", "ci"), ("client_secret", "c s&="), ("grant_type", "refresh_token"),
        ("refresh_token", "1//rt")))
    for name, variables, *want in azure(url):
        tell("azure", name, variables, *want)
    print("end", flush=True)
    sys.stdin.read()


main()
