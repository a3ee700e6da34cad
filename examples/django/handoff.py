"""Takes visitors who come from the page of a room on another host.

It redeems the code in `?firstcome_handoff=…`, once, and keeps the pass in a cookie of this site. List it before the middleware that
verifies passes.
"""

import json, re, secrets, urllib.error, urllib.request
from datetime import datetime

from django.conf import settings
from django.http import HttpResponseRedirect, JsonResponse
from django.utils.encoding import escape_uri_path

KEY = "firstcome_handoff_key"


class Handoff:
    """Django middleware. `settings.FIRSTCOME`: service, key and room."""

    def __init__(self, get_response):
        self.get_response = get_response
        told = settings.FIRSTCOME
        self.address, self.key = f"{told['service']}/v1/rooms/{told['room']}/handoffs", told["key"]

    def redeem(self, code, once):
        headers = {"authorization": f"Bearer {self.key}", "idempotency-key": once, "content-type": "application/json"}
        body = json.dumps({"code": code}).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.address, body, headers), timeout=5) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code in (401, 429) or error.code >= 500:
                raise
            return {}  # The code was used or is over: the next middleware leads to the page of the room.

    def __call__(self, request):
        code = request.GET.get("firstcome_handoff")
        if request.method != "GET" or code is None:
            return self.get_response(request)
        query = request.GET.copy()
        del query["firstcome_handoff"]
        path = re.sub("^/{2,}", "/", escape_uri_path(request.path)) + (f"?{query.urlencode()}" if query else "")
        cookie = {"httponly": True, "samesite": "Lax", "secure": request.is_secure()}
        # The same key again after a lost answer: only then does the code count again.
        once = request.COOKIES.get(KEY, "")
        once = once if re.fullmatch("[0-9a-f]{32}", once) else secrets.token_hex(16)
        try:
            told = self.redeem(code, once)
            answer = HttpResponseRedirect(path, status=303)
            if "pass" in told:
                end = datetime.fromisoformat(told["slot_ends_at"].replace("Z", "+00:00"))
                answer.set_cookie("firstcome_pass", told["pass"], expires=end, **cookie)
            answer.delete_cookie(KEY)
        except (OSError, ValueError):
            answer = JsonResponse({"code": "store_unavailable"}, status=503, headers={"retry-after": "5", "refresh": "5"})
            answer.set_cookie(KEY, once, max_age=60, **cookie)
        answer["cache-control"], answer["referrer-policy"] = "no-store", "no-referrer"
        return answer
