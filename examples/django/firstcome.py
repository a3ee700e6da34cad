"""Lets a visitor with a valid pass of a waiting room through. Verifies passes without a call to firstcome: see docs/rooms.md."""

import base64, json, struct, threading, time, urllib.error, urllib.request
from datetime import datetime
from urllib.parse import quote

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from django.conf import settings
from django.http import HttpResponseRedirect, JsonResponse

HEADER = "v4.public."
KNOWN_MAX = 10_000
SPREAD_S = 2  # A list that was asked for this long after an admission has it.


def decoded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def encoded(*parts):
    """What PASETO signs, as its specification says under "Pre-Authentication Encoding"."""
    return struct.pack("<Q", len(parts)) + b"".join(struct.pack("<Q", len(part)) + part for part in parts)


def instant(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class Firstcome:
    """Django middleware. `settings.FIRSTCOME`: service, key, room, and if wanted page, grace_s and fail_open."""

    def __init__(self, get_response):
        self.get_response = get_response
        told = settings.FIRSTCOME
        self.service, self.key, self.room = told["service"], told["key"], told["room"]
        self.page = told.get("page", f"/rooms/{self.room}")
        self.grace_s, self.fail_open = told.get("grace_s", 30), told.get("fail_open", False)
        self.known, self.keys, self.signers, self.domain = {}, b"", {}, b""
        self.tag, self.live, self.as_of, self.fresh_at = None, frozenset(), 0.0, float("-inf")
        threading.Thread(target=self.refresh_forever, daemon=True).start()

    def ask(self, path, headers):
        headers = {"authorization": f"Bearer {self.key}", **headers}
        return urllib.request.urlopen(urllib.request.Request(self.service + path, headers=headers), timeout=2)

    def refresh(self):
        sent_at = time.monotonic()
        with self.ask("/v1/pass-keys", {}) as answer:
            keys = answer.read()
        if keys != self.keys:  # Passes of a key that is gone are void.
            told = json.loads(keys)
            raw = {item["kid"]: decoded(item["public_key"].removeprefix("k4.public.")) for item in told["items"]}
            self.signers = {kid: Ed25519PublicKey.from_public_bytes(key) for kid, key in raw.items()}
            self.keys, self.domain, self.known = keys, told["implicit_assertion"].encode(), {}
        try:
            with self.ask(f"/v1/rooms/{self.room}/passes", {"if-none-match": self.tag} if self.tag else {}) as answer:
                self.live, headers = frozenset(map(tuple, json.load(answer)["items"])), answer.headers
        except urllib.error.HTTPError as error:
            if error.code != 304:
                raise
            headers = error.headers
        self.tag, self.as_of, self.fresh_at = headers["etag"], instant(headers["x-firstcome-as-of"]), sent_at

    def refresh_forever(self):
        while True:
            try:
                self.refresh()
            except (OSError, ValueError, KeyError):
                pass  # The age of the list says how long it has failed.
            time.sleep(1)

    def read(self, token):
        payload, footer = map(decoded, token[len(HEADER) :].split("."))
        message, signature = payload[:-64], payload[-64:]
        signer = self.signers[json.loads(footer)["kid"]]
        signer.verify(signature, encoded(HEADER.encode(), message, footer, self.domain))
        if len(self.known) >= KNOWN_MAX:
            self.known = {}
        return self.known.setdefault(token, json.loads(message))

    def grant(self, request):
        token = request.headers.get("X-Firstcome-Pass") or request.COOKIES.get("firstcome_pass", "")
        if not token.startswith(HEADER) or len(token) > 1_024:
            return None
        try:
            claims = self.known.get(token) or self.read(token)
        except (InvalidSignature, ValueError, KeyError, TypeError):
            return None
        is_live = (claims["number"], claims["slot"]) in self.live or self.as_of < instant(claims["iat"]) + SPREAD_S
        return claims if is_live and claims["room"] == self.room and time.time() < instant(claims["exp"]) else None

    def __call__(self, request):
        is_away = time.monotonic() - self.fresh_at > self.grace_s
        request.firstcome = None if is_away and not self.fail_open else self.grant(request)
        if request.firstcome or (is_away and self.fail_open):
            return self.get_response(request)
        if is_away:
            answer = JsonResponse({"code": "store_unavailable"}, status=503, headers={"retry-after": "5"})
        elif request.get_preferred_type(["text/html", "application/json"]) == "application/json":
            answer = JsonResponse({"code": "no_pass"}, status=401)
        else:
            answer = HttpResponseRedirect(f"{self.page}?back={quote(request.get_full_path(), safe='')}", status=303)
        answer["cache-control"] = "no-store"
        return answer
