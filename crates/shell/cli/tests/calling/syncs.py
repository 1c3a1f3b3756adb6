import os, random, sys, threading
clients, syncs, size = (int(x) for x in sys.argv[1:4])
def run(n):
    at = random.Random(n)
    for i in range(syncs):
        os.pwrite(files[n], bytes([i % 251]) * size, size * at.randrange((8 << 20) // size))
        os.fsync(files[n])
files = [os.open('f%d' % n, os.O_RDWR | os.O_CREAT) for n in range(clients)]
for f in files:
    os.write(f, b'x' * (8 << 20))
os.sync()
mark = lambda text: open(os.environ['ORDO_MARK'], 'w').write('mark ' + text)
mark('begin')
all = [threading.Thread(target=run, args=(n,)) for n in range(clients)]
[t.start() for t in all]
[t.join() for t in all]
mark('end')
