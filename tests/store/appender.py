"""Appends to a journal until it is killed, and says after each append that it is done; run by test_sqlite.py."""

import asyncio
import sys

import anyio

from agentkv.store import SQLiteStore


async def main(path: str, prefix: str, count: int) -> None:
    store = SQLiteStore(path, busy_timeout=60)
    await store.open()

    async def run(name: str) -> None:
        for seq in range(count):
            await store.append(name, seq, {"type": "x", "text": "å" * 500})
            print(name, seq, flush=True)

    async with anyio.create_task_group() as tasks:
        for index in range(4):
            tasks.start_soon(run, f"{prefix}{index}")
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
