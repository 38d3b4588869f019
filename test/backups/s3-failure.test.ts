import test from "ava";
import { failureOf } from "../../src/backups/storages/s3-failure.ts";
import type { S3Connection } from "../../src/backups/storages/s3-calls.ts";

const place: S3Connection = {
  ...{ endpoint: "https://s3.example.org:9000", region: "", bucket: "backups", ca: "" },
  ...{ accessKey: "AKTEST0123456789", secretKey: "none-of-the-words", pathStyle: true },
  ...{ maxBytesPerSec: undefined, silenceMs: 60_000 },
};

/** Server responses that quote the request. */
const quoting = (text: string): Error =>
  Object.assign(new Error(text), { name: "AccessDenied", $metadata: { httpStatusCode: 403 } });

for (const [what, text] of [
  ["the secret", place.secretKey],
  ["the access key", place.accessKey],
  ["the endpoint", place.endpoint],
  ["the host", "s3.example.org"],
] as const) {
  test(`a server's response that quotes ${what} is not repeated in the error`, (t) => {
    for (let before = 0; before < 320; before++) {
      const { reason, message } = failureOf(quoting(`${"x".repeat(before)}${text} was sent`), place);
      t.is(reason, "denied");
      // Also not its remains if long responses are truncated.
      if (message.includes(text.slice(0, 6))) t.fail(message);
    }
  });
}
