"""A site behind a waiting room: `FIRSTCOME=http://127.0.0.1:8080 FIRSTCOME_KEY=… python3 site.py 127.0.0.1:3000`.

A proxy before it sends /rooms/sale and /assets/room.* to firstcome.
"""

import os, sys
from wsgiref.simple_server import make_server

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import re_path

settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    # The first one says how long answers are.
    MIDDLEWARE=["django.middleware.common.CommonMiddleware", "handoff.Handoff", "firstcome.Firstcome"],
    FIRSTCOME={
        "service": os.environ["FIRSTCOME"],
        "key": os.environ["FIRSTCOME_KEY"],
        "room": "sale",
        "fail_open": os.environ.get("FAIL_OPEN") == "yes",
        "grace_s": int(os.environ.get("GRACE_MS", "30000")) / 1_000,
    },
)


def welcome(request):
    number = request.firstcome["number"] if request.firstcome else "unknown"
    return HttpResponse(f"welcome, number {number}")


urlpatterns = [re_path("", welcome)]

if __name__ == "__main__":
    host, port = sys.argv[1].split(":")
    server = make_server(host, int(port), get_wsgi_application())
    print(f"listening on http://{host}:{server.server_port}", flush=True)
    server.serve_forever()
