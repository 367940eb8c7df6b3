"""moto's S3 with faults in front of it. Its one argument is a folder: the file `fault` in it says what goes wrong, `requests`
lists what was asked. It prints its port and ends with its standard input."""

import json
import os
import socket
import sys
import threading
import time
import urllib.request

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

FOLDER = sys.argv[1]
LOCK = threading.Lock()


def fault_of(method, path):
    """Returns the kind of fault for this request, and counts it down."""
    with LOCK:
        try:
            with open(os.path.join(FOLDER, "fault"), encoding="utf-8") as file:
                fault = json.load(file)
        except FileNotFoundError:
            return None
        if fault["method"] not in ("", method) or fault["path"] not in path or fault["times"] == 0:
            return None
        fault["times"] -= 1
        new = os.path.join(FOLDER, "fault.new")
        with open(new, "w", encoding="utf-8") as file:
            json.dump(fault, file)
        os.replace(new, os.path.join(FOLDER, "fault"))
        return fault["kind"]


class Faults:
    def __init__(self, app):
        self.app = app

    def __call__(self, environ, start_response):
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        kind = fault_of(method, path)
        seen = []

        def begin(status, headers, exc_info=None):
            seen.append((status, headers))
            return lambda data: None

        if kind == "no-conditions":
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if kind == "slow":
            time.sleep(3)
        body = b""
        if kind not in ("503", "cut"):
            body = b"".join(self.app(environ, begin))
        status = seen[0][0] if seen else "-"
        with LOCK, open(os.path.join(FOLDER, "requests"), "a", encoding="utf-8") as file:
            file.write(f"{method} {path} {kind or 'well'} {status[:3]}\n")
        if kind in ("cut", "cut-after"):
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return []
        if kind in ("503", "503-after"):
            start_response("503 Service Unavailable", [("Content-Type", "application/xml")])
            return [b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"]
        start_response(*seen[0])
        return [body]


class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *_):
        pass


def main():
    app = Faults(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    bucket = urllib.request.Request(f"http://127.0.0.1:{server.port}/blobs", method="PUT", headers={
        "Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request"})
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(bucket)
    print(server.port, flush=True)
    sys.stdin.read()
    os._exit(0)


main()
