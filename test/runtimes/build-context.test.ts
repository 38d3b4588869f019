/** What of a build is read by the daemon is bounded (docs/threat-model.md). */
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { createIdentities } from "../../src/identity/identities.ts";
import { openBuildContext } from "../../src/runtimes/docker/build-context.ts";

const allowedBytes = 256 * 1024;

for (const file of ["Dockerfile", ".dockerignore"]) {
  test(`a ${file} that is longer than any is not read`, async (t) => {
    await using identities = createIdentities();
    const root = await mkdtemp(join(tmpdir(), "svc-context-"));
    t.teardown(() => rm(root, { recursive: true }));
    await mkdir(join(root, "repo"));
    await writeFile(join(root, "repo/Dockerfile"), "FROM scratch\n");
    const identity = await identities.as(process.getuid?.() ?? 0);
    const open = () =>
      openBuildContext({
        ...{ identity, root, path: "repo", dockerfile: "Dockerfile" },
        ...{ check: () => undefined, timeoutMs: 60_000 },
      });
    const line = "# a comment\n";
    await writeFile(join(root, "repo", file), line.repeat(allowedBytes / line.length + 1));
    await t.throwsAsync(open, { message: /262144/ });
    await writeFile(join(root, "repo", file), line.repeat(100));
    (await open()).archive.resume().destroy();
  });
}
