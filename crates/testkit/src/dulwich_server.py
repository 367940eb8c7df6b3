"""Serves the repositories of a folder by HTTPS, with dulwich, which is not git. For tests.

Arguments: the folder, a certificate and its key. Prints its port. Each request is a line in the file `requests`.
"""

import os
import ssl
import sys
from wsgiref.simple_server import WSGIRequestHandler, make_server

from dulwich.server import FileSystemBackend
from dulwich.web import make_wsgi_chain

ROOT, CERTIFICATE, KEY = sys.argv[1:4]


class Handler(WSGIRequestHandler):
    def log_request(self, code="-", size="-"):
        with open(os.path.join(ROOT, "requests"), "a") as file:
            file.write(f"{self.command} {self.path} {self.headers.get('content-length', 0)}\n")

    def log_message(self, *_):
        pass


class Backend(FileSystemBackend):
    def open_repository(self, path):
        return super().open_repository(os.path.join(ROOT, os.fsdecode(path).lstrip("/")))


def with_length(app):
    """Says how long each answer is: the server ends connections without a word of TLS."""

    def answer(environ, start):
        told, written = [], []

        def begin(status, headers, _=None):
            told[:] = [status, headers]
            return written.append

        content = b"".join(app(environ, begin))
        content = b"".join(written) + content
        status, headers = told
        start(status, [*headers, ("Content-Length", str(len(content)))])
        return [content]

    return answer


server = make_server("127.0.0.1", 0, with_length(make_wsgi_chain(Backend(ROOT))), handler_class=Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(CERTIFICATE, KEY)
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
