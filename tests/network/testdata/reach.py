"""Tries to reach what its arguments name; each is KIND=TARGET."""

import socket
import ssl
import sys
import urllib.request

from attempt import attempt, report

SECONDS = 15


def family(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def endpoint(target):
    host, _, port = target.rpartition(":")
    return host.strip("[]"), int(port)


def tcp(target):
    with socket.create_connection(endpoint(target), timeout=SECONDS) as s:
        s.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return s.recv(100)[:15].decode()


def udp(target):
    host, port = endpoint(target)
    with socket.socket(family(host), socket.SOCK_DGRAM) as s:
        s.settimeout(2)
        s.sendto(b"question", (host, port))
        return s.recv(100).decode()


def ping(target, kind):
    six = ":" in target
    with socket.socket(family(target), kind, socket.IPPROTO_ICMPV6 if six else socket.IPPROTO_ICMP) as s:
        s.settimeout(2)
        s.sendto(b"\x80\0\0\0\0\0\0\0" if six else b"\x08\0\xf7\xff\0\0\0\0", (target, 0))
        s.recv(100)


def http(target):
    with urllib.request.urlopen(target, timeout=SECONDS) as r:
        return r.read().decode()


def https(target):
    context = ssl.create_default_context()  # the authorities of the system, as the box has them
    with urllib.request.urlopen(target, timeout=SECONDS, context=context) as r:
        return r.read().decode()


def tunnel(target):
    """Asks an allowed host to connect on, as a proxy would."""
    via, _, to = target.partition(">")
    with socket.create_connection(endpoint(via), timeout=SECONDS) as s:
        s.sendall(f"CONNECT {to} HTTP/1.0\r\n\r\n".encode())
        return s.recv(100)[:12].decode()


def abstract(target):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\0" + target)


def listen(target):
    with socket.socket(family(endpoint(target)[0])) as s:
        s.bind(endpoint(target))
        s.listen()


KINDS = {
    "tcp": tcp, "udp": udp, "http": http, "https": https, "tunnel": tunnel, "abstract": abstract, "listen": listen,
    "icmp": lambda t: ping(t, socket.SOCK_DGRAM),
    "raw": lambda t: ping(t, socket.SOCK_RAW),
    "resolve": lambda t: socket.getaddrinfo(t, 80)[0][4][0],
    "family": lambda t: socket.socket(int(t), socket.SOCK_STREAM if int(t) == 40 else socket.SOCK_RAW).close(),  # AF_VSOCK, AF_NETLINK, AF_PACKET
}

for argument in sys.argv[1:]:
    kind, _, target = argument.partition("=")
    attempt(argument, lambda: KINDS[kind](target))
report()
