#!/usr/bin/env python3
"""Plays the Hugging Face hub and its storage servers over TLS, for tests. Needs nothing but Python's standard library and openssl.

usage: hub_server.py FOLDER

FOLDER/repos/OWNER/NAME/COMMIT/... are the files of a repository at a commit (40 hexadecimal digits); FOLDER/repos/OWNER/NAME/refs/main
names one. FOLDER/plan.json, read anew for each request, says what goes wrong. The server makes FOLDER/cert.pem, writes its requests to
FOLDER/requests.jsonl and prints one line when it is ready: the hub's port and the port of the storage server. It ends when its standard
input does.

What the hub answers is what huggingface_hub asks for (file_download.py, hf_api.py):
  GET  /api/models/OWNER/NAME/revision/REVISION            {"id", "sha", "siblings"}
  GET  /api/models/OWNER/NAME/tree/REVISION?recursive=true [{"type", "path", "size", "oid", "lfs": {"oid", "size"}}], in pages
  HEAD /OWNER/NAME/resolve/REVISION/FILE                   X-Repo-Commit, ETag; of large files a redirect to the storage server with
                                                           X-Linked-Etag and X-Linked-Size
Keys of plan.json:
  lfs_from: bytes from which a file lies at the storage server (default 1000)
  page: entries of a page of the tree (default 1000)
  token, gated: the token that is needed, and whether that one lacks the permission
  private: without the token the repository is not there
  rate: bytes a second of each answer
  answers: [{"path": part of it, "method", "status", "headers", "times"}]: instead of the true answer, so many times
  drops: [{"path": part of it, "after": bytes of the body, "times"}]: the connection is closed there
  no_ranges: ranges are not known
  content: {path: text}: instead of the true content, which keeps its hash and size
  tree: entries in place of the true ones; tree_more: entries behind them; next: the address of a next page
  sha: instead of the true commit; info: the whole body of the revision's answer
  linked: headers X-Linked-… instead of the true ones
  storage: the address of the storage server, for redirects (default: localhost at the other port)
"""
import hashlib, http.server, json, os, pathlib, socket, socketserver, ssl, subprocess, sys, threading, time, urllib.parse

lock = threading.Lock()


class Plan:
    """plan.json, with the counters of what it limits."""

    def __init__(self, folder):
        self.path, self.text, self.plan, self.used = folder / "plan.json", None, {}, {}

    def read(self):
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            text = "{}"
        if text != self.text:
            self.text, self.plan, self.used = text, json.loads(text), {}
        return self.plan

    def take(self, kind, path, method):
        """The first rule of a kind that fits and is not used up."""
        with lock:
            for i, rule in enumerate(self.read().get(kind, [])):
                if rule.get("path", "") not in path or rule.get("method", method) != method:
                    continue
                if self.used.get((kind, i), 0) >= rule.get("times", 1 << 30):
                    continue
                self.used[kind, i] = self.used.get((kind, i), 0) + 1
                return rule
        return None


def blob_id(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Hub:
    def __init__(self, folder):
        self.folder, self.plan = folder, Plan(folder)
        self.hashes = {}

    def commit(self, repo, revision):
        folder = self.folder / "repos" / repo
        ref = folder / "refs" / revision
        commit = ref.read_text().strip() if ref.is_file() else revision
        return commit if (folder / commit).is_dir() and len(commit) == 40 else None

    def files(self, repo, commit):
        top = self.folder / "repos" / repo / commit
        return {str(p.relative_to(top)): p for p in sorted(top.rglob("*")) if p.is_file()}

    def entry(self, name, path):
        size = path.stat().st_size
        key = (str(path), size, path.stat().st_mtime_ns)
        if key not in self.hashes:
            content = path.read_bytes()
            self.hashes[key] = hashlib.sha256(content).hexdigest(), blob_id(content)
        sha256, blob = self.hashes[key]
        if size < self.plan.read().get("lfs_from", 1000):
            return {"type": "file", "path": name, "size": size, "oid": blob}
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
        return {"type": "file", "path": name, "size": size, "oid": blob_id(pointer), "lfs": {"oid": sha256, "size": size, "pointerSize": len(pointer)}}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub
    storage = False

    def log_message(self, *args):
        pass

    def note(self):
        with lock, open(self.hub.folder / "requests.jsonl", "a") as file:
            file.write(json.dumps({"at": "storage" if self.storage else "hub", "method": self.command, "path": self.path,
                                   "range": self.headers.get("Range", ""), "authorization": self.headers.get("Authorization", "")}) + "\n")

    def answer(self, status, body=b"", headers={}):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.send_body(body)

    def send_body(self, body):
        plan = self.hub.plan.read()
        drop = self.hub.plan.take("drops", self.path, self.command) if body else None
        end = min(len(body), drop["after"]) if drop else len(body)
        step = max(1, int(plan["rate"] / 50)) if "rate" in plan else 1 << 20
        for begin in range(0, end, step):
            self.wfile.write(body[begin:min(end, begin + step)])
            if "rate" in plan:
                time.sleep(0.02)
        if drop:
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    def fail(self, status, code="", message=""):
        headers = {k: v for k, v in {"X-Error-Code": code, "X-Error-Message": message}.items() if v}
        self.answer(status, json.dumps({"error": message or code}).encode(), headers)

    def send_content(self, name, path, headers):
        plan = self.hub.plan.read()
        planned = plan.get("content", {}).get(name)
        size = path.stat().st_size if planned is None else len(planned.encode())

        def content(first, end):
            if planned is not None:
                return planned.encode()[first:end]
            with path.open("rb") as file:
                file.seek(first)
                return file.read(end - first)

        range_ = self.headers.get("Range")
        if range_ and not plan.get("no_ranges"):
            first, _, last = range_.removeprefix("bytes=").partition("-")
            first, last = int(first), min(int(last or size - 1), size - 1)
            if first >= size:
                return self.answer(416, b"", {"Content-Range": f"bytes */{size}"})
            headers = headers | {"Content-Range": f"bytes {first}-{last}/{size}", "Accept-Ranges": "bytes"}
            return self.answer(206, content(first, last + 1), headers)
        self.answer(200, content(0, size), headers)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.note()
        try:
            rule = self.hub.plan.take("answers", self.path, self.command)
            if rule:
                self.answer(rule["status"], json.dumps({"error": "as planned"}).encode(), rule.get("headers", {}))
            elif self.storage:
                self.from_storage()
            else:
                self.from_hub()
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            self.close_connection = True

    def from_storage(self):
        if self.headers.get("Authorization"):
            return self.fail(400, "", "a token was sent to the storage server")
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).removeprefix("/store/")
        repo, commit, name = "/".join(path.split("/")[:2]), path.split("/")[2], "/".join(path.split("/")[3:])
        self.send_content(name, self.hub.folder / "repos" / repo / commit / name, {})

    def allowed(self):
        plan = self.hub.plan.read()
        needed, given = plan.get("token"), self.headers.get("Authorization", "").removeprefix("Bearer ")
        if needed and given and given != needed:
            self.fail(401, "", "Invalid credentials in Authorization header")
        elif needed and not given and plan.get("private"):
            self.fail(401, "RepoNotFound", "Repository not found")
        elif plan.get("gated"):
            self.fail(403 if given else 401, "GatedRepo", "Access to this model is restricted")
        elif needed and not given:
            self.fail(401, "GatedRepo", "Access to this model is restricted. You must be authenticated to access it")
        else:
            return True
        return False

    def from_hub(self):
        url = urllib.parse.urlsplit(self.path)
        parts = [urllib.parse.unquote(p) for p in url.path.strip("/").split("/")]
        api = parts[:2] == ["api", "models"]
        repo = "/".join(parts[2:4] if api else parts[:2])
        if not (self.hub.folder / "repos" / repo).is_dir():
            # As the hub does: who has no token is not told whether it exists.
            return self.fail(404 if self.headers.get("Authorization") else 401, "RepoNotFound", "Repository not found")
        if not self.allowed():
            return
        kind, revision = (parts[4], parts[5]) if api and len(parts) > 5 else (parts[4] if api and len(parts) > 4 else parts[2], "main" if api else parts[3])
        commit = self.hub.commit(repo, revision)
        if commit is None:
            return self.fail(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if api:
            return self.tree(repo, commit, url) if kind == "tree" else self.info(repo, commit)
        self.resolve(repo, commit, "/".join(parts[4:]))

    def info(self, repo, commit):
        plan = self.hub.plan.read()
        body = {"id": repo, "modelId": repo, "sha": plan.get("sha", commit), "private": False, "gated": False, "disabled": False, "downloads": 0, "likes": 0,
                "tags": [], "siblings": [{"rfilename": name} for name in self.hub.files(repo, commit)]}
        self.answer(200, plan["info"].encode() if "info" in plan else json.dumps(body).encode(), {"Content-Type": "application/json"})

    def tree(self, repo, commit, url):
        plan = self.hub.plan.read()
        entries = plan.get("tree") or [self.hub.entry(name, path) for name, path in self.hub.files(repo, commit).items()]
        entries = entries + plan.get("tree_more", [])
        page, at = plan.get("page", 1000), int(urllib.parse.parse_qs(url.query).get("cursor", ["0"])[0])
        headers = {"Content-Type": "application/json"}
        if at + page < len(entries):
            headers["Link"] = f'<https://{self.headers["Host"]}{url.path}?recursive=true&cursor={at + page}>; rel="next"'
        if "next" in plan:
            headers["Link"] = f'<{plan["next"]}>; rel="next"'
        self.answer(200, json.dumps(entries[at : at + page]).encode(), headers)

    def resolve(self, repo, commit, name):
        plan, path = self.hub.plan.read(), self.hub.folder / "repos" / repo / commit / name
        headers = {"X-Repo-Commit": commit}
        if not path.is_file():
            return self.answer(404, b"Entry not found", headers | {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"})
        entry = self.hub.entry(name, path)
        if "lfs" not in entry:
            return self.send_content(name, path, headers | {"ETag": f'"{entry["oid"]}"'})
        headers |= {"X-Linked-Size": str(entry["size"]), "X-Linked-Etag": f'"{entry["lfs"]["oid"]}"', "ETag": f'"{entry["lfs"]["oid"]}"'}
        headers |= plan.get("linked", {})
        storage = plan.get("storage", f"https://localhost:{self.hub.storage_port}")
        headers["Location"] = f"{storage}/store/{repo}/{commit}/{urllib.parse.quote(name)}?signed=yes"
        self.answer(302, b"", headers)


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def finish_request(self, request, client_address):
        # The handshake here, on the request's own thread.
        try:
            request = self.tls.wrap_socket(request, server_side=True)
            super().finish_request(request, client_address)
        except (ssl.SSLError, OSError, ValueError):
            pass

    def handle_error(self, request, client_address):
        pass


def main():
    folder = pathlib.Path(sys.argv[1])
    cert, key = folder / "cert.pem", folder / "key.pem"
    if not cert.exists():
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-keyout", str(key), "-out", str(cert),
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    hub, servers = Hub(folder), []
    for storage in (False, True):
        server = Server(("127.0.0.1", 0), type("HubHandler", (Handler,), {"hub": hub, "storage": storage}))
        server.tls = tls
        servers.append(server)
    hub.storage_port = servers[1].server_port
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(servers[0].server_port, servers[1].server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
