"""Python's httpx against a site at the edge, over TLS and HTTP/2.

Arguments: the site's URL and the file of the certificate to trust. It does what edge/main.go does, and ends with "ok".
"""

import asyncio
import ssl
import sys

import httpx

SITE, CERTIFICATE = sys.argv[1:3]


async def main():
    trust = ssl.create_default_context(cafile=CERTIFICATE)
    async with httpx.AsyncClient(http2=True, http1=False, verify=trust, base_url=SITE, trust_env=False) as client:

        async def page():
            answer = await client.get("/page")
            assert (answer.status_code, answer.http_version) == (200, "HTTP/2"), answer
            assert answer.text == "a page", answer.text

        await page()
        await asyncio.gather(*(page() for _ in range(100)))
        body = b"0123456789abcdef" * 100_000
        answer = await client.post("/echo", content=body)
        assert answer.content == body, len(answer.content)
        number = 0
        async with client.stream("GET", "/events") as answer:
            async for line in answer.aiter_lines():
                if line == f"data: {number}":
                    number += 1
                if number == 3:
                    break
        assert number == 3, number


asyncio.run(main())
print("ok")
