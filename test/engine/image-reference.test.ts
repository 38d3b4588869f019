/** Names of images in all spellings. */
import fc from "fast-check";
import test from "ava";
import {
  formatImageReference,
  isLoopbackHost,
  parseImageReference,
} from "../../src/engine/image-reference.ts";
import { SvcError } from "../../src/errors.ts";

const sha = `sha256:${"0a".repeat(32)}`;

for (const [text, whole] of [
  ["nginx", "docker.io/library/nginx:latest"],
  ["nginx:1.27-alpine", "docker.io/library/nginx:1.27-alpine"],
  ["team/web", "docker.io/team/web:latest"],
  ["docker.io/nginx", "docker.io/library/nginx:latest"],
  ["index.docker.io/team/web:2", "docker.io/team/web:2"],
  ["ghcr.io/team/web:2", "ghcr.io/team/web:2"],
  ["localhost/web", "localhost/web:latest"],
  ["localhost:5000/web", "localhost:5000/web:latest"],
  ["127.0.0.1:5000/a/b/c:v1", "127.0.0.1:5000/a/b/c:v1"],
  ["[::1]:5000/web:1", "[::1]:5000/web:1"],
  ["Registry/web", "Registry/web:latest"],
  [`nginx@${sha}`, `docker.io/library/nginx@${sha}`],
  [`ghcr.io/a/b:1@${sha}`, `ghcr.io/a/b:1@${sha}`],
  ["a__b/c-d.e_f", "docker.io/a__b/c-d.e_f:latest"],
] as const) {
  test(`${text} is ${whole}`, (t) => {
    const reference = parseImageReference(text);
    t.is(formatImageReference(reference), whole);
    t.deepEqual(parseImageReference(whole), reference);
  });
}

for (const text of [
  "",
  " ",
  "Nginx",
  "nginx:",
  "nginx:a b",
  "nginx@sha256:short",
  `nginx@md5:${"0".repeat(32)}`,
  "nginx@",
  "/nginx",
  "a//b",
  "a/../b",
  "-a",
  "a_-b",
  "https://ghcr.io/a/b",
  "ghcr.io/",
  "ghcr.io:99999999/a",
  `nginx:${"a".repeat(129)}`,
  "a/".repeat(200) + "a",
  "user@host/web",
  "nginx\n",
  "nginx?x",
]) {
  test(`${JSON.stringify(text.slice(0, 40))} is not a valid name`, (t) => {
    const error = t.throws(() => parseImageReference(text), { instanceOf: SvcError });
    t.is(error.code, "invalid_argument");
  });
}

test("a completed name parses to the same reference, and fits into a URL's path", (t) => {
  const part = fc.stringMatching(/^[a-z0-9]{1,8}([._-][a-z0-9]{1,4}){0,2}$/);
  const host = fc.constantFrom("team/", "localhost/", "registry.example:5000/", "127.0.0.1:1/");
  const tag = fc.oneof(fc.constant(""), fc.stringMatching(/^:[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}$/));
  fc.assert(
    fc.property(host, fc.array(part, { minLength: 1, maxLength: 4 }), tag, (registry, parts, end) => {
      const reference = parseImageReference(`${registry}${parts.join("/")}${end}`);
      t.deepEqual(parseImageReference(formatImageReference(reference)), reference);
      t.is(new URL(`http://x/v2/${reference.repository}/`).pathname, `/v2/${reference.repository}/`);
    }),
  );
});

for (const [host, expected] of [
  ["localhost:5000", true],
  ["127.0.0.1", true],
  ["127.9.9.9:1", true],
  ["[::1]:5000", true],
  ["127.0.0.1.example.com", false],
  ["localhost.example.com", false],
  ["10.0.0.1:5000", false],
] as const) {
  test(`${host} is ${expected ? "" : "not "}on this host`, (t) => t.is(isLoopbackHost(host), expected));
}
