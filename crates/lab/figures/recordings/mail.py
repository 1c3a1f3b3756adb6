"""Sends messages by SMTP with the lengths of the workload, and takes those for other hosts, and waits: mail.py PORT MESSAGES SECONDS."""

import random
import smtplib
import socketserver
import sys
import threading
import time


class Taker(socketserver.StreamRequestHandler):
    """Another host: it takes every message."""

    def handle(self):
        def say(text):
            self.wfile.write(text.encode() + b"\r\n")

        say("220 elsewhere.test")
        while line := self.rfile.readline():
            verb = line[:4].upper()
            if verb == b"DATA":
                say("354 go on")
                while self.rfile.readline() not in (b".\r\n", b""):
                    pass
            say("221 bye" if verb == b"QUIT" else "250 ok")
            if verb == b"QUIT":
                return


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def main():
    port, messages = int(sys.argv[1]), int(sys.argv[2])
    server = Server(("127.0.0.1", port + 1), Taker)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = smtplib.SMTP("127.0.0.1", port)
    chance = random.Random(1)
    for number in range(messages):
        host = "elsewhere.test" if chance.random() < 0.3 else "here.test"
        to = f"user{chance.randrange(50)}@{host}"
        length = min(max(int(chance.expovariate(1 / 4096)), 200), 128 << 10)
        body = "\n".join("x" * 71 for _ in range(length // 72))
        client.sendmail("from@here.test", [to], f"Subject: {number}\n\n{body}\n")
    client.quit()
    # Deliveries go on in the background.
    time.sleep(float(sys.argv[3]))


main()
