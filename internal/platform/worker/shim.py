# Runs one piece of python: the order, the code and the document come by descriptor
# 3, lines go out by descriptor 4 (package worker). What is printed goes nowhere.
def shim():
    import asyncio, inspect, io, json, os, sys
    source = io.BufferedReader(io.FileIO(3, 'rb'), 65536)
    for fd in (3, 4):
        os.set_inheritable(fd, False)

    def write(value):
        data = json.dumps(value, allow_nan=False).encode() + b'\n'
        while data:
            data = data[os.write(4, data):]

    class Host:
        calls = 0

        def chunk(self, value):
            write({'chunk': value})

        def __getattr__(self, name):
            def call(*params):
                Host.calls += 1
                write({'jsonrpc': '2.0', 'id': Host.calls, 'method': name, 'params': params})
                reply = json.loads(source.readline())
                if reply.get('error'):
                    raise RuntimeError(reply['error']['message'])
                return reply.get('result')
            return call

    async def drain(value):
        async for item in value:
            write({'chunk': item})

    def settle(value):
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
        if inspect.isasyncgen(value):
            return asyncio.run(drain(value))
        if inspect.isgenerator(value):
            while True:
                try:
                    write({'chunk': next(value)})
                except StopIteration as end:
                    return end.value
        return value

    try:
        order = json.loads(source.readline())
        code = source.read(order['code'])
        document = json.loads(source.read(order['input']))
        sys.stdout = io.StringIO()
        sys.stdout.write = len
        if order['path']:
            sys.path.insert(0, order['path'])
        space = {'__name__': 'handlers', 'host': Host()}
        exec(compile(code, 'handlers.py', 'exec'), space)
        handlers = space.get('HANDLERS')
        handler = handlers.get(order['handler']) if isinstance(handlers, dict) else None
        args = document.get('args', [])
        if callable(handler):
            value = handler(args, document.get('context', {}))
        elif callable(space.get(order['entry'])):
            value = space[order['entry']](*args, **document.get('kwargs', {}))
        else:
            raise LookupError('the code has no function %s and no HANDLERS with %s' % (order['entry'], order['handler']))
        write({'result': settle(value)})
    except MemoryError:
        write({'error': {'kind': 'memory', 'message': '', 'limit': 0}})
    except BaseException as e:
        write({'error': {'kind': 'code', 'message': ('%s: %s' % (type(e).__name__, e))[:2000], 'limit': 0}})
    os._exit(0)


shim()
