"""Serves the repositories of a folder by HTTPS, with git's own http-backend. For tests.

Arguments: the folder, a certificate and its key. Prints its port. The file `fault` in the folder says how it misbehaves,
as long as it is there: a status such as 503, `cut` (an answer that breaks off) or `slow` (a byte at a time for a while).
Each request is a line in the file `requests`.
"""

import http.server
import os
import ssl
import subprocess
import sys
import time

ROOT, CERTIFICATE, KEY = sys.argv[1:4]


def read(name):
    try:
        with open(os.path.join(ROOT, name)) as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def log_message(self, *_):
        pass

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers.get("content-length", 0))))

    def do_GET(self):
        self.answer(b"")

    def answer(self, body):
        path, _, query = self.path.partition("?")
        with open(os.path.join(ROOT, "requests"), "a") as file:
            file.write(f"{self.command} {self.path} {len(body)}\n")
        fault = read("fault")
        if fault.isdigit():
            self.send_response(int(fault))
            if fault.startswith("3"):
                self.send_header("Location", "https://elsewhere.example/")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        env = {
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": ROOT, "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
            "QUERY_STRING": query, "REQUEST_METHOD": self.command, "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": self.headers.get("content-type", ""), "CONTENT_LENGTH": str(len(body)),
            "GIT_PROTOCOL": self.headers.get("git-protocol", ""), "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
        }
        done = subprocess.run(["git", "http-backend"], env=env, input=body, stdout=subprocess.PIPE)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        headers.pop("Content-Length", None)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        is_pack = self.command == "POST" and b"packfile" in content[:200]
        if fault == "cut" and is_pack:
            content = content[: len(content) * 2 // 3]
        self.end_headers()
        if fault == "slow" and is_pack:
            while read("fault") == "slow" and content:
                self.wfile.write(content[:16])
                self.wfile.flush()
                content = content[16:]
                time.sleep(0.2)
        self.wfile.write(content)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(CERTIFICATE, KEY)
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
