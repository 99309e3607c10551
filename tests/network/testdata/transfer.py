"""Sends and fetches bytes over many connections and checks every one of them."""

import hashlib
import socket
import sys
import time

host, port, connections, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
block = bytes(range(256)) * 256
begun = time.monotonic()
for n in range(connections):
    with socket.create_connection((host, port)) as s:
        s.settimeout(300)
        sent, digest = 0, hashlib.sha256()
        s.sendall(size.to_bytes(8, "big"))
        while sent < size:
            chunk = block[: min(len(block), size - sent)]
            s.sendall(chunk)
            digest.update(chunk)
            sent += len(chunk)
        s.shutdown(socket.SHUT_WR)
        answer = b""
        while len(answer) < 32:
            answer += s.recv(32 - len(answer)) or sys.exit(f"connection {n} ended early")
        if answer != digest.digest():
            sys.exit(f"connection {n}: what arrived is not what was sent")
        got, back = 0, hashlib.sha256()
        while chunk := s.recv(1 << 16):
            back.update(chunk)
            got += len(chunk)
        if got != size or back.digest() != answer:
            sys.exit(f"connection {n}: {got} bytes came back, or others")
print(f"seconds={time.monotonic() - begun:.3f}", flush=True)
print("done", flush=True)
sys.stdin.read()
