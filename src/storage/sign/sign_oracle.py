"""Random requests and their signatures by botocore: the oracle of sigv4_test.c.

usage: sign_oracle.py SEED COUNT

Prints a line a request: fields in hex, separated by blanks; lists by commas, pairs by '='.
  kind method host path query headers payload region service access secret token time expected
Exits with 77 if botocore is not installed.
"""
import datetime
import random
import sys
import urllib.parse

try:
    import botocore.auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials
except ImportError:
    sys.exit(77)

EXPIRES = 3600
NAMES = ("Range", "If-Match", "x-amz-checksum-mode", "X-Amz-Request-Payer", "Content-Type",
         "x-amz-meta-a", "x-amz-meta-a-b", "x-amz-meta-ab")
BYTES = bytes(range(1, 256))
PLAIN = bytes(range(0x20, 0x7f))
KNOTTY = b"/.~-_ +%=&?#*'()!$@:;,\"\\^`{|}<>[]\xc3\xa9\x80\xff\tab09AZ"


def text(rng, alphabet, longest):
    return bytes(rng.choice(alphabet) for _ in range(rng.randint(0, longest)))


def quote(raw, safe="-._~"):
    return urllib.parse.quote(raw, safe=safe)


def freeze(moment):
    """botocore of any version asks this clock."""
    class Clock(datetime.datetime):
        @classmethod
        def utcnow(cls):
            return moment

        @classmethod
        def now(cls, tz=None):
            return moment.replace(tzinfo=tz)

    if hasattr(botocore.auth, "get_current_datetime"):
        botocore.auth.get_current_datetime = lambda *_, **__: moment
    if hasattr(botocore.auth, "datetime"):
        module = botocore.auth.datetime
        if hasattr(module, "datetime"):
            botocore.auth.datetime = type("datetime", (), {"datetime": Clock})
        else:
            botocore.auth.datetime = Clock


def make(rng):
    mixed = rng.choice((KNOTTY, BYTES, PLAIN))
    path = b"/" + text(rng, mixed, 60)
    kind = rng.choice((b"headers", b"headers", b"presign"))
    # To presign, botocore reads the query as UTF-8.
    spoken = bytes(byte for byte in mixed if byte < 0x80 or kind != b"presign")
    query = {}
    for _ in range(rng.randint(0, 8)):
        query[text(rng, spoken, 6) or b"x"] = text(rng, spoken, 12)
    headers = {name: text(rng, PLAIN + b"  \t", 20).decode()
               for name in rng.sample(NAMES, rng.randint(0, 6))}
    headers = {name: value for name, value in headers.items() if value.strip()}
    host = rng.choice(("bucket.s3.amazonaws.com", "127.0.0.1:9000", "s3.eu-west-1.amazonaws.com",
                       "[::1]:8080"))
    return {
        "kind": kind,
        "method": rng.choice((b"GET", b"PUT", b"HEAD", b"DELETE", b"POST")),
        "host": host.encode(), "path": path, "query": query, "headers": headers,
        "payload": rng.choice((b"UNSIGNED-PAYLOAD", bytes(rng.choice(b"0123456789abcdef")
                                                          for _ in range(64)))),
        "region": rng.choice((b"us-east-1", b"eu-central-1", b"auto")),
        "service": rng.choice((b"s3", b"s3express")),
        "access": b"AKIA" + text(rng, b"ABCDEFGHIJ234567", 16),
        "secret": b"s" + text(rng, PLAIN, 80),
        "token": rng.choice((b"", text(rng, PLAIN[1:], 200))),
        "time": rng.randint(0, 4102444800),
    }


def expected(given):
    freeze(datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=given["time"]))
    url = f"http://{given['host'].decode()}{quote(given['path'], '-._~/')}"
    pairs = [f"{quote(name)}={quote(value)}" for name, value in given["query"].items()]
    url += "?" + "&".join(pairs) if pairs else ""
    request = AWSRequest(method=given["method"].decode(), url=url, headers=given["headers"])
    keys = Credentials(given["access"].decode(), given["secret"].decode(),
                       given["token"].decode() or None)
    region, service = given["region"].decode(), given["service"].decode()
    presigned = given["kind"] == b"presign"
    if presigned:
        signer = botocore.auth.S3SigV4QueryAuth(keys, service, region, expires=EXPIRES)
    else:
        signer = botocore.auth.S3SigV4Auth(keys, service, region)
    signer.payload = lambda _: given["payload"].decode()
    signer.add_auth(request)
    if presigned:
        return dict(urllib.parse.parse_qsl(request.url.split("?", 1)[1]))["X-Amz-Signature"]
    return request.headers["Authorization"]


def fold(pairs):
    return ",".join(f"{name.hex()}={value.hex()}" for name, value in pairs) or "-"


def main():
    rng = random.Random(int(sys.argv[1]))
    for _ in range(int(sys.argv[2])):
        given = make(rng)
        answer = expected(given).encode()
        given["query"] = fold(given["query"].items())
        given["headers"] = fold((name.encode(), value.encode())
                                for name, value in given["headers"].items())
        given["time"] = str(given["time"]).encode()
        fields = [value if isinstance(value, str) else value.hex() or "-"
                  for value in given.values()]
        print(*fields, answer.hex())


main()
