/**
 * Random operations on a small tree, done through the daemon and, on a copy of it, by coreutils as the same user: the
 * resulting trees are equal, and operations fail for the same reasons. `SVC_LONG=1` takes 10,000 steps.
 */
import { execFile } from "node:child_process";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import fc from "fast-check";
import test from "ava";
import { FileService } from "../../../gen/svc/v1/file_pb.ts";
import { isRoot } from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { openGround, ownerUid } from "../../files/support/ground.ts";

const rootTest = isRoot ? test : test.skip;
const steps = process.env["SVC_LONG"] === "1" ? 10_000 : 300;
/** Of one step, which starts several programs, on a busy host. */
const mostStepMs = 500;

interface Step {
  verb: "mkdir" | "rm" | "cp" | "mv" | "chmod" | "write";
  from: string;
  to: string;
  mode: string;
}

/**
 * Few names, so that paths collide: with spaces, a newline, a dash, non-ASCII bytes, and one that belongs to another
 * user.
 */
const name = fc.constantFrom("a", "b", "c d", "-e", "f\ng", "ü", "locked", "theirs");
const path = fc.array(name, { minLength: 1, maxLength: 2 }).map((names) => names.join("/"));
const step: fc.Arbitrary<Step> = fc.record({
  verb: fc.constantFrom("mkdir", "mkdir", "rm", "cp", "mv", "chmod", "write", "write"),
  from: path,
  to: path,
  mode: fc.constantFrom("0755", "0700", "0644", "0500", "0600", "0750"),
});

/** A tool's error messages, and the daemon's possible reasons for the same error. */
const words: readonly (readonly [said: RegExp, reasons: readonly string[]])[] = [
  [/Permission denied|Operation not permitted/, ["denied"]],
  [/No such file|nonexistent/, ["not_found", "denied", "not_possible"]],
  [/File exists|exists already|not replacing/, ["already_exists", "invalid_request"]],
  [
    /Not a directory|Is a directory|non-directory|Directory not empty/,
    ["denied", "not_possible", "already_exists", "invalid_request"],
  ],
  [/into itself|to a subdirectory of itself|same file/, ["invalid_request", "already_exists"]],
];

/** The same with coreutils, with options that replace nothing and treat the target as a file. */
function script({ verb, from, to, mode }: Step): string {
  const [one, other] = [quoted(`./${from}`), quoted(`./${to}`)];
  // Both check that the target exists first.
  const free = `if [ -e ${other} ] || [ -L ${other} ]; then echo 'File exists' >&2; exit 1; fi`;
  const isThere = `stat -- ${one} >/dev/null || exit 1`;
  switch (verb) {
    case "mkdir":
      return `umask 0; mkdir -m ${mode} -- ${one}`;
    case "rm":
      return `${isThere}; rm -rf -- ${one}`;
    case "cp":
      // A partial copy of a tree with unreadable parts cannot always be removed.
      return `${isThere}; ${free}; cp -aT -- ${one} ${other} || { { chmod -R u+rwX -- ${other}; rm -rf -- ${other}; } 2>/dev/null; exit 1; }`;
    case "mv":
      return `${isThere}; ${free}; mv -nT -- ${one} ${other}`;
    case "chmod":
      return `chmod ${mode} -- ${one}`;
    case "write":
      return `set -C; umask 022; echo ${quoted(to)} > ${one}`;
  }
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

rootTest("random operations have the same results and errors as coreutils", async (t) => {
  t.timeout(steps * mostStepMs);
  await using ground = await openGround();
  const { home, connection, as } = ground;
  const files = connection.client(FileService, "grpc");
  const [ours, theirs] = [join(home, "ours"), join(home, "theirs")];
  for (const root of [ours, theirs]) {
    await as(
      ownerUid,
      "sh",
      "-c",
      `mkdir -p ${root}/locked; echo x > ${root}/locked/a; chmod 0500 ${root}/locked`,
    );
    await mkdir(join(root, "theirs"), { mode: 0o700 });
  }
  const tool = (work: Step) =>
    new Promise<string>((resolve) => {
      const argv = [`--reuid=${ownerUid}`, "--regid=60", "--init-groups", "--", "sh", "-c", script(work)];
      execFile(
        "setpriv",
        argv,
        { cwd: theirs, env: { PATH: process.env["PATH"] ?? "", LC_ALL: "C" } },
        (error, _out, err) => resolve(error === null ? "" : err || "failed"),
      );
    });
  const daemon = async ({ verb, from, to, mode }: Step): Promise<string> => {
    const [one, other] = [`${ours}/${from}`, `${ours}/${to}`];
    const calls = {
      mkdir: () => files.createDirectory({ path: one, mode }),
      rm: async () => {
        const { failed } = await files.deletePaths({ paths: [one] });
        if (failed.length > 0) throw new Error(failed[0]?.error);
      },
      cp: () => files.copyPath({ from: one, to: other }),
      mv: () => files.movePath({ from: one, to: other }),
      chmod: () => files.setPathAttributes({ path: one, mode }),
    };
    if (verb === "write") {
      const message = { path: one, content: { contentType: "", data: Buffer.from(`${to}\n`) } };
      const sent = (async function* () {
        yield await Promise.resolve(message);
      })();
      return files.writeFile(sent).then(
        () => "",
        async (error: unknown) => (await errorOf(Promise.reject(error as Error))).reason,
      );
    }
    const call: Promise<unknown> = calls[verb]();
    return call.then(
      () => "",
      async (error: unknown) =>
        error instanceof Error && !("rawMessage" in error)
          ? /does not exist/.test(error.message)
            ? "not_found"
            : "denied"
          : (await errorOf(Promise.reject(error as Error))).reason,
    );
  };
  const picture = (root: string) =>
    as(
      0,
      "sh",
      "-c",
      `cd ${root}; find . -printf '%P|%y|%m|%U|%l\\n' | sort; find . -type f -exec md5sum {} + | sort`,
    );
  let [done, refused] = [0, 0];
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 20 }), async (works) => {
      for (const work of works) {
        const shown = JSON.stringify(work);
        const [said, reason] = [await tool(work), await daemon(work)];
        if (said === "") {
          done++;
          if (reason !== "") throw new Error(`${shown}: failed with ${reason}, but the tool succeeded`);
        } else {
          refused++;
          const [, reasons = []] = words.find(([pattern]) => pattern.test(said)) ?? [];
          // Both are right about a copy into itself in a directory where nothing can be created.
          const isIntoItself = reason === "invalid_request" && work.to.startsWith(`${work.from}/`);
          if (!reasons.includes(reason) && !isIntoItself)
            throw new Error(`${shown}: "${reason}", but the tool printed ${said}`);
        }
      }
      const [one, other] = [await picture(ours), await picture(theirs)];
      if (one !== other)
        throw new Error(`after ${JSON.stringify(works)}:\n${one}\nand with the tools:\n${other}`);
    }),
    {
      numRuns: steps / 20,
      endOnFailure: true,
      reporter: (details) => {
        if (details.failed) throw details.errorInstance;
      },
    },
  );
  t.log(`${done} succeeded, ${refused} failed`);
  t.true(done > steps / 20 && refused > steps / 20);
});
