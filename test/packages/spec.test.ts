import test from "ava";
import fc from "fast-check";
import { SvcError } from "../../src/errors.ts";
import { redactUrls } from "../../src/packages/git/git-url.ts";
import { isRefName, parseSpec, type PackageRequest, type PackageSpec } from "../../src/packages/spec.ts";

const accepted: [request: PackageRequest, spec: PackageSpec][] = [
  [{ spec: "hello" }, { kind: "listed", name: "hello", revision: {} }],
  [{ spec: "Node-RED" }, { kind: "listed", name: "Node-RED", revision: {} }],
  [{ spec: "main/hello" }, { kind: "listed", name: "hello", source: "main", revision: {} }],
  [
    { spec: "hello", source: "main" },
    { kind: "listed", name: "hello", source: "main", revision: {} },
  ],
  [
    { spec: "main/hello", source: "main" },
    { kind: "listed", name: "hello", source: "main", revision: {} },
  ],
  [{ spec: "hello@v1.2.0" }, { kind: "listed", name: "hello", revision: { tag: "v1.2.0" } }],
  [{ spec: "main/hello@1" }, { kind: "listed", name: "hello", source: "main", revision: { tag: "1" } }],
  [
    { spec: "hello", tag: "v1", branch: "" },
    { kind: "listed", name: "hello", revision: { tag: "v1" } },
  ],
  [
    { spec: "hello", branch: "fix/a" },
    { kind: "listed", name: "hello", revision: { branch: "fix/a" } },
  ],
  [
    { spec: "https://Git.Example/a/b.git", tag: "v1" },
    {
      kind: "git",
      gitUrl: { transport: "https", url: "https://git.example/a/b.git" },
      revision: { tag: "v1" },
    },
  ],
  [
    { spec: "ssh://git@host:2222/a/b" },
    { kind: "git", gitUrl: { transport: "ssh", url: "ssh://git@host:2222/a/b" }, revision: {} },
  ],
  [
    { spec: "git@host.example:a/b.git" },
    { kind: "git", gitUrl: { transport: "ssh", url: "git@host.example:a/b.git" }, revision: {} },
  ],
  [
    { spec: "http://127.0.0.1:3000/a.git" },
    { kind: "git", gitUrl: { transport: "http", url: "http://127.0.0.1:3000/a.git" }, revision: {} },
  ],
  [
    { spec: "https://[::1]/a.git" },
    { kind: "git", gitUrl: { transport: "https", url: "https://[::1]/a.git" }, revision: {} },
  ],
  [
    { spec: "file:///srv/my%20repo.git" },
    {
      kind: "git",
      gitUrl: { transport: "file", url: "file:///srv/my%20repo.git", path: "/srv/my repo.git" },
      revision: {},
    },
  ],
  [
    { spec: "[git@host.example:2222]:a/b.git" },
    { kind: "git", gitUrl: { transport: "ssh", url: "[git@host.example:2222]:a/b.git" }, revision: {} },
  ],
  [
    { spec: "git@[::1]:a/b.git" },
    { kind: "git", gitUrl: { transport: "ssh", url: "git@[::1]:a/b.git" }, revision: {} },
  ],
  [
    { spec: "https://host/a.git#v1.0:docker/web/" },
    {
      kind: "git",
      gitUrl: { transport: "https", url: "https://host/a.git" },
      revision: { ref: "v1.0" },
      directory: "docker/web",
    },
  ],
  [
    { spec: "git@host:a/b.git#:web", tag: "web-v1.0" },
    {
      kind: "git",
      gitUrl: { transport: "ssh", url: "git@host:a/b.git" },
      revision: { tag: "web-v1.0" },
      directory: "web",
    },
  ],
  [
    { spec: "file:///srv/a%23b##12-fix" },
    {
      kind: "git",
      gitUrl: { transport: "file", url: "file:///srv/a%23b", path: "/srv/a#b" },
      revision: { ref: "#12-fix" },
    },
  ],
  [
    { spec: "hello", tag: "@acme/web@1.4.0" },
    { kind: "listed", name: "hello", revision: { tag: "@acme/web@1.4.0" } },
  ],
  [{ spec: "/srv/packages/hello/" }, { kind: "directory", path: "/srv/packages/hello" }],
  [{ spec: "//" }, { kind: "directory", path: "/" }],
  [{ spec: "/srv/my packages/hello" }, { kind: "directory", path: "/srv/my packages/hello" }],
];

for (const [request, spec] of accepted) {
  test(`accepted: ${JSON.stringify(request)}`, (t) => {
    t.deepEqual(parseSpec(request), spec);
  });
}

const refused: [request: PackageRequest, field: string, message: RegExp][] = [
  [{ spec: "" }, "spec", /is empty/],
  [{ spec: "-hello" }, "spec", /looks like an option/],
  [{ spec: "--upload-pack=touch /tmp/x" }, "spec", /looks like an option/],
  [{ spec: "ext::sh -c whoami" }, "spec", /white space/],
  [{ spec: "ext::sh" }, "spec", /helper program/],
  [{ spec: "fd::7" }, "spec", /helper program/],
  [{ spec: "git://host/a" }, "spec", /scheme "git"/],
  [{ spec: "http://host.example/a" }, "spec", /use https/],
  [{ spec: "http://127.0.0.1.evil.example/a" }, "spec", /use https/],
  [{ spec: "ssh://-oProxyCommand=x/a" }, "spec", /no valid host/],
  [{ spec: "ssh://-oProxyCommand=x@host/a" }, "spec", /username/],
  [{ spec: "-oProxyCommand=x:a" }, "spec", /option/],
  [{ spec: "git@-oProxyCommand:a" }, "spec", /no valid host/],
  [{ spec: "git@host:2222/a/b" }, "spec", /for the port 2222 write ssh:\/\/git@host:2222\/a\/b;/],
  [{ spec: "[git@host:99999]:a/b" }, "spec", /the port 99999/],
  [{ spec: "[-oProxyCommand=x:22]:a/b" }, "spec", /no valid host/],
  [{ spec: "[git@host:22]:-a" }, "spec", /looks like an option/],
  [{ spec: "https://host/a#v1", branch: "main" }, "branch", /already names "#v1"/],
  [{ spec: "https://host/a#--output=x" }, "spec", /is not a valid branch or tag name/],
  [{ spec: "https://host/a#main:../b" }, "spec", /contains "\." or "\.\."/],
  [{ spec: "git@host:-a" }, "spec", /looks like an option/],
  [{ spec: "git@host:a;b" }, "spec", /characters/],
  [{ spec: "https://host/$(id)" }, "spec", /characters/],
  [{ spec: "https://host/a/../b" }, "spec", /"\.\."/],
  [{ spec: "https://host" }, "spec", /scheme:\/\/host\/path/],
  [{ spec: "https://host/a?token=x" }, "spec", /characters/],
  [{ spec: "https://me:hunter2@host/a" }, "spec", /credentials/],
  [{ spec: "ssh://me:hunter2@host/a" }, "spec", /password/],
  [{ spec: "file://host/a" }, "spec", /absolute path/],
  [{ spec: "file:///a/../../etc" }, "spec", /"\.\."/],
  [{ spec: "file:///a%00b" }, "spec", /control/],
  [{ spec: "/a/../b" }, "spec", /"\.\."/],
  [{ spec: "/a\nb" }, "spec", /control/],
  [{ spec: "hello\0" }, "spec", /control/],
  [{ spec: "hello world" }, "spec", /is not a package ID/],
  [{ spec: "a/b/c" }, "spec", /is not a package ID/],
  [{ spec: "hello@" }, "spec", /is not a valid tag name/],
  [{ spec: "hello@-x" }, "spec", /is not a valid tag name/],
  [{ spec: "hello", branch: "a", tag: "b" }, "branch", /not both/],
  [{ spec: "hello@v1", tag: "v1" }, "tag", /already has a tag/],
  [{ spec: "hello@v1", branch: "main" }, "branch", /already has a tag/],
  [{ spec: "hello", branch: "--output=x" }, "branch", /is not a valid branch name/],
  [{ spec: "hello", tag: "a..b" }, "tag", /is not a valid tag name/],
  [{ spec: "main/hello", source: "other" }, "source", /differs/],
  [{ spec: "/srv/a", source: "main" }, "source", /no history/],
  [{ spec: "/srv/a", tag: "v1" }, "tag", /no history/],
  [{ spec: "https://host/a", source: "main" }, "source", /does not belong to a source/],
];

for (const [request, field, message] of refused) {
  test(`rejected: ${JSON.stringify(request)}`, (t) => {
    const error = t.throws(() => parseSpec(request), {
      instanceOf: SvcError,
      message,
    }) as SvcError<"invalid_request">;
    t.is(error.code, "invalid_argument");
    t.is(error.payload?.violations?.[0]?.field, field);
    t.notRegex(error.message, /hunter2/, "credentials are redacted");
  });
}

test("an accepted spec is safe as an argument of git and of ssh", (t) => {
  const nasty = fc.constantFrom(
    ...Array.from("$`;|&<>(){}'\"\\ \t\n\0-=@:/.%#?*!~^[]"),
    "ext::",
    "--upload-pack=",
    "-o",
    "..",
  );
  const word = fc
    .array(fc.oneof(nasty, fc.constantFrom("a", "b1", "host")), { maxLength: 8 })
    .map((s) => s.join(""));
  const spec = fc.oneof(
    word,
    fc
      .tuple(fc.constantFrom("https://", "ssh://", "file:///", "git@", "ext::", "http://"), word, word)
      .map((p) => p.join("")),
    fc
      .tuple(fc.constantFrom("https://host/", "ssh://git@host/", "git@host:", "a@", "main/"), word)
      .map((p) => p.join("")),
    fc.string(),
  );
  fc.assert(
    fc.property(spec, fc.option(word, { nil: undefined }), (text, tag) => {
      let parsed: PackageSpec;
      try {
        parsed = parseSpec({ spec: text, ...(tag !== undefined && { tag }) });
      } catch (error) {
        return error instanceof SvcError && error.code === "invalid_argument";
      }
      if (parsed.kind === "directory") return parsed.path.startsWith("/") && !parsed.path.includes("\0");
      const { branch, tag: wanted } = parsed.revision;
      if (![branch, wanted].every((name) => name === undefined || isRefName(name))) return false;
      if (parsed.kind === "listed") return /^[A-Za-z0-9][A-Za-z0-9._+-]*$/.test(parsed.name);
      const { transport, url } = parsed.gitUrl;
      if (transport === "file") return parsed.gitUrl.path?.startsWith("/") === true;
      // The host that ssh gets, and the path that the remote side gets.
      const [, host = "-", path = "-"] =
        /^(?:[a-z]+:\/\/)?(?:[^@/:]*@)?(\[[^\]]*\]|[^:/]*)(?::\d+)?[:/](.*)$/.exec(url) ?? [];
      if ([url, host, path].some((part) => part.startsWith("-"))) return false;
      return !/[\s$`;|&<>(){}'"\\*?#!^]|::/.test(path);
    }),
    { numRuns: 20_000 },
  );
  t.pass();
});

test("urls in messages lose their credentials", (t) => {
  t.is(redactUrls("fatal: https://me:pw@host/a?token=x failed"), "fatal: https://***@host/a?*** failed");
  t.is(
    redactUrls("https://u:p@ss@host/x and https://u:p?a@b@c@host"),
    "https://***@host/x and https://***@host",
  );
  t.is(redactUrls("https://host/a@b"), "https://host/a@b");
});
