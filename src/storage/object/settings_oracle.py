"""Random environments, configuration files and URLs, and botocore's result for them: the oracle of
settings_test.c.

usage: settings_oracle.py SEED COUNT

Prints a line for each: fields in hex, separated by blanks; variables as NAME=value, separated by a
NUL.
  variables config bucket url region service attempts lazy_sums lazy_checks sign_payload ca_file
If botocore refuses, url is "-" and the fields after it are missing. Exits with 77 without botocore.
"""
import functools
import os
import random
import re
import sys
import tempfile

try:
    import botocore.awsrequest
    import botocore.compat
    import botocore.exceptions
    import botocore.hooks
    import botocore.session
except ImportError:
    sys.exit(77)

KEY = "k/l"
REGIONS = ("us-east-1", "us-east-1", "us-west-2", "eu-central-1", "cn-north-1", "cn-northwest-1",
           "us-gov-west-1", "us-iso-east-1", "us-isob-east-1", "eu-isoe-west-1", "us-isof-south-1",
           "eusc-de-east-1", "mars-west-9", "fips-us-west-2", "us-gov-east-1-fips", "aws-global")
BUCKETS = ("bucket", "b.c.d", "Upper", "under_score", "abc", "10.1.2.3", "x-" + "y" * 60 + "z",
           "ends-", "two..dots", "name-b1c2d3-s3alias", "a1b2-lambda--ol-s3",
           "test-accessp-o0b1d075431d83bebde8xz5w8ijx1qzlbp3i3kuse10--op-s3",
           "test-accessp-e0b1d075431d83bebde8xz5w8ijx1qzlbp3i3kuse10--op-s3")
ENDPOINTS = ("http://host:9000", "https://host", "http://10.0.0.1:9000/base", "https://[::1]:7/a/b",
             "https://s3-accelerate.amazonaws.com",
             "https://bucket.vpce-1.s3.us-west-2.vpce.amazonaws.com",
             "http://localhost:80", "https://host.example:443/x")
FLAGS = ("true", "false", "True", "TRUE")
ONE_OF = {"addressing_style": ("path", "virtual", "auto"),
          "us_east_1_regional_endpoint": ("legacy", "regional"),
          "request_checksum_calculation": ("when_required", "when_supported", "WHEN_REQUIRED"),
          "response_checksum_validation": ("when_required", "when_supported"),
          "max_attempts": ("1", "3", "7", "40"), "retry_mode": ("legacy", "standard", "adaptive"),
          "ca_bundle": ("/etc/ssl/a.pem", "/nowhere/b.pem")}
# In a profile, below "s3 =", variable; each where botocore reads it.
SETTINGS = (("max_attempts", None, "AWS_MAX_ATTEMPTS"), ("retry_mode", None, "AWS_RETRY_MODE"),
            ("use_fips_endpoint", None, "AWS_USE_FIPS_ENDPOINT"),
            ("use_dualstack_endpoint", "use_dualstack_endpoint", "AWS_USE_DUALSTACK_ENDPOINT"),
            (None, "addressing_style", None), (None, "use_accelerate_endpoint", None),
            (None, "payload_signing_enabled", None),
            ("s3_use_arn_region", "use_arn_region", "AWS_S3_USE_ARN_REGION"),
            ("s3_us_east_1_regional_endpoint", "us_east_1_regional_endpoint",
             "AWS_S3_US_EAST_1_REGIONAL_ENDPOINT"),
            ("request_checksum_calculation", None, "AWS_REQUEST_CHECKSUM_CALCULATION"),
            ("response_checksum_validation", None, "AWS_RESPONSE_CHECKSUM_VALIDATION"),
            ("ca_bundle", None, "AWS_CA_BUNDLE"),
            ("ignore_configured_endpoint_urls", None, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"))


def keep_signatures():
    """What half of the time goes into, again and again: whether a handler takes keywords."""
    for module in (botocore.compat, botocore.hooks):
        module.accepts_kwargs = functools.lru_cache(None)(module.accepts_kwargs)


def value_of(rng, name):
    return rng.choice(ONE_OF.get(re.sub("^s3_(?=us_)", "", name), FLAGS))


def name_of(rng, region):
    """A bucket, or an ARN in its stead; most are of the region."""
    kind, account = rng.random(), "123456789012"
    where = region if rng.random() < 0.7 else rng.choice(REGIONS[:-3])
    cloud = "aws-cn" if where.startswith("cn-") else "aws"
    if kind < 0.5:
        return rng.choice(BUCKETS)
    if kind < 0.6 and re.fullmatch(r"us-(east|west)-\d", region):
        zone = f"us{region[3]}{region[-1]}-az{rng.randint(1, 6)}"
        return f"b--{zone}--{rng.choice(('x-s3', 'xa-s3'))}"
    mark = rng.choice(":/")
    if kind < 0.8:
        name = rng.choice(("point", "my-point", "UP", "-bad", "a.b", ""))
        return f"arn:{cloud}:s3:{where}:{account}:accesspoint{mark}{name}"
    if kind < 0.85:
        return f"arn:{cloud}:s3::{account}:accesspoint{mark}mfzwi23gnjvgw.mrap"
    if kind < 0.93:
        return f"arn:{cloud}:s3-object-lambda:{where}:{account}:accesspoint{mark}lambda"
    return f"arn:{cloud}:s3-outposts:{where}:{account}:outpost{mark}op-01{mark}accesspoint{mark}p"


def make(rng):
    region = rng.choice(REGIONS)
    environment, profile, below, services = {}, [], [], []
    busy = rng.choice((0.1, 0.3))
    if rng.random() < 0.5:
        environment["AWS_DEFAULT_REGION"] = region.replace("aws-global", "us-west-2")
    elif rng.random() < 0.8:
        profile.append(f"region = {region}")
    else:
        region = "us-east-1"
    for plain, inner, variable in SETTINGS:
        if variable and rng.random() < busy:
            environment[variable] = value_of(rng, plain)
        if plain and rng.random() < busy:
            profile.append(f"{plain} = {value_of(rng, plain)}")
        if inner and rng.random() < busy:
            below.append(f"  {inner} = {value_of(rng, inner)}")
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        if rng.random() < busy / 2:
            environment[name] = rng.choice(ENDPOINTS)
    if rng.random() < busy / 2:
        profile.append(f"endpoint_url = {rng.choice(ENDPOINTS)}")
    if rng.random() < busy:
        profile.append("services = ours")
        services = ["[services ours]", "s3 =", f"  endpoint_url = {rng.choice(ENDPOINTS)}"]
        services = services if rng.random() < 0.9 else []
    if rng.random() < busy:
        environment["REQUESTS_CA_BUNDLE"] = "/etc/requests.pem"
    name = name_of(rng, region)
    if name.endswith(("--x-s3", "--xa-s3", "--op-s3")):
        # Here stoker goes by its own rules (s3_endpoint.h) at a server of one's own.
        for variable in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            environment.pop(variable, None)
        environment["AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"] = "true"
        environment["AWS_S3_DISABLE_EXPRESS_SESSION_AUTH"] = "true"
        environment["AWS_DEFAULT_REGION"] = region.replace("aws-global", "us-west-2")
    section = "default"
    if rng.random() < 0.5:
        section, environment["AWS_PROFILE"] = "profile team", "team"
    profile += ["s3 =", *below] if below else []
    return environment, "\n".join([f"[{section}]", *profile, *services, ""]), name


def expected(session, environment, name):
    """The request for the key, caught before it is sent. One session serves all, as making one
    takes long: its caches of the last set-up are cleared."""
    sent = []

    def catch(request, **_):
        sent.append(request)
        return botocore.awsrequest.AWSResponse(request.url, 200, {}, None)

    os.environ.clear()
    os.environ.update(environment)
    session._config = session._profile = session._profile_map = session._credentials = None
    client = session.create_client("s3")
    client.meta.events.register("before-send.s3", catch)
    try:
        client.head_object(Bucket=name, Key=KEY)
    except AttributeError:  # of the answer that was never there
        pass
    config, request = client.meta.config, sent[0]
    signed = request.headers["Authorization"]
    scope = re.search(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/",
                      signed.decode() if isinstance(signed, bytes) else signed)
    verify = client._endpoint.http_session._verify
    signs = (config.s3 or {}).get("payload_signing_enabled")
    return (request.url, scope[1], scope[2], str(config.retries.get("total_max_attempts", 0)),
            str(int(config.request_checksum_calculation == "when_required")),
            str(int(config.response_checksum_validation == "when_required")),
            {None: "0", False: "1", True: "2"}[signs], verify if isinstance(verify, str) else "")


def main():
    rng = random.Random(int(sys.argv[1]))
    keep_signatures()
    session = botocore.session.Session()
    with tempfile.NamedTemporaryFile("w+", suffix=".ini") as file:
        done = 0
        while done < int(sys.argv[2]):
            environment, config, name = make(rng)
            file.seek(0)
            file.truncate()
            file.write(config)
            file.flush()
            more = {"AWS_CONFIG_FILE": file.name, "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
                    "AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret"}
            try:
                answer = expected(session, {**environment, **more}, name)
                fields = [text.encode().hex() or "00" for text in answer]
                if name.startswith("arn:") and "10.0.0.1" in answer[0]:
                    fields = ["-", b"a host before a number".hex()]  # which cannot be resolved
            except botocore.exceptions.EndpointVariantError:
                continue  # dual stack in a cloud without it, though an endpoint is named, too
            except Exception as why:  # whatever it refuses with
                fields = ["-", type(why).__name__.encode().hex()]
            variables = "\0".join(f"{key}={value}" for key, value in environment.items())
            print(variables.encode().hex() or "00", config.encode().hex(), name.encode().hex(),
                  *fields, flush=True)
            done += 1


main()
