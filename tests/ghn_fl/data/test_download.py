"""Downloads from a server on this machine: whole and right, or nothing at all."""

import hashlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ghn_fl.data.download import Remote, cache_folder, fetch
from ghn_fl.errors import DataError

CONTENT = bytes(range(256)) * 9000  # over two chunks
SHA = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
MD5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"


class Handler(BaseHTTPRequestHandler):
    asked = 0

    def do_GET(self) -> None:
        Handler.asked += 1
        if self.path == "/missing.bin":
            self.send_error(404)
            return
        self.send_response(200)
        if self.path == "/cut.bin":  # promises all, sends half
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT[: len(CONTENT) // 2])
            return
        self.end_headers()
        if self.path == "/slow.bin":
            stop.wait(5)
        self.wfile.write(CONTENT)

    def log_message(self, format: str, *args: object) -> None:
        pass


stop = threading.Event()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        stop.set()
        http.shutdown()
        thread.join()


def remote(url: str, checksum: str = SHA, num_bytes: int = len(CONTENT)) -> Remote:
    return Remote(url=url, checksum=checksum, num_bytes=num_bytes)


@pytest.mark.parametrize("checksum", [SHA, MD5])
def test_a_file_comes_once_and_whole(server: str, tmp_path: Path, checksum: str) -> None:
    folder = tmp_path / "a" / "b"
    path = fetch(remote(f"{server}/set.bin", checksum), folder)
    assert path == folder / "set.bin"
    assert path.read_bytes() == CONTENT
    assert [f.name for f in folder.iterdir()] == ["set.bin"]
    before = Handler.asked
    assert fetch(remote(f"{server}/set.bin", checksum), folder) == path
    assert Handler.asked == before


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("set.bin", {"checksum": "sha256:" + "0" * 64}, "wrong sha256 checksum: expected 0000"),
        ("set.bin", {"num_bytes": 1000}, "is larger than 1000 bytes"),
        ("missing.bin", {}, "cannot download .*/missing.bin: 404 Not Found"),
        ("cut.bin", {}, "cut.bin"),
    ],
)
def test_nothing_is_kept_of_what_is_wrong(
    server: str, tmp_path: Path, name: str, change: dict[str, object], says: str
) -> None:
    with pytest.raises(DataError, match=says):
        fetch(remote(f"{server}/{name}", **change), tmp_path)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_hangs_is_given_up(server: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot download .*slow.bin: .*timed out"):
        fetch(remote(f"{server}/slow.bin"), tmp_path, timeout=0.3)
    assert list(tmp_path.iterdir()) == []


def test_no_server(tmp_path: Path) -> None:
    with socket.socket() as probe:  # a port that nobody listens on
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(DataError, match=r"cannot download http.*: Connection refused"):
        fetch(remote(f"http://127.0.0.1:{port}/set.bin"), tmp_path)


def test_a_folder_that_cannot_be_made(server: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"cannot write into .*file"):
        fetch(remote(f"{server}/set.bin"), tmp_path / "file" / "sub")


def test_the_cache_is_where_the_system_wants_it(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache_folder() == own_cache
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "ghnfl"
