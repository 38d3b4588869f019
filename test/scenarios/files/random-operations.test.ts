/** Random file operations, with and without deaths of their processes. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chown, mkdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "@connectrpc/connect";
import test from "ava";
import fc from "fast-check";
import { FileService } from "../../../gen/svc/v1/file_pb.ts";
import { helperOf, leftOvers, waitMs } from "../../files/support/deaths.ts";
import { openGround, ownerUid } from "../../files/support/ground.ts";
import { sharedGround } from "../../files/support/shared-ground.ts";
import { isRoot } from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { keepInMemory } from "../../support/in-memory.ts";

// Random operations on a small tree, done through the daemon and, on a copy of it, by coreutils as the same user:
// the resulting trees are equal, and operations fail for the same reasons. `SVC_LONG=1` takes 10,000 steps.

const rootTest = isRoot ? test : test.skip;
const steps = process.env["SVC_LONG"] === "1" ? 10_000 : 300;
/** Maximum duration of one step, which starts several programs, on a busy host. */
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

// Kills of the daemon and the helper process at random moments of each writing operation: each file is either
// unchanged or finished, and nothing else is left. `SVC_LONG=1` takes ten of each. Kills at a known moment, and
// what can be done after them: `deaths.test.ts`.

/** On another file system than the homes. */
const farBase = keepInMemory() ? "/var/tmp" : "/dev/shm";

const newGround = sharedGround();
const isLong = process.env["SVC_LONG"] === "1";
const deaths = isLong ? 10 : 1;
const bigBytes = 24 << 20;
/** With the other fields, less than a message may contain. */
const pieceBytes = 512 << 10;
const smallFiles = 400;

type Files = Client<typeof FileService>;

interface Verb {
  /** Runs a shell as the owner in their home, where `tree` exists. */
  prepare?: string;
  work: (files: Files, home: string, away: string) => Promise<unknown>;
  /** Shell commands in the home, with `$away`: whether everything is unchanged, and whether everything is finished. */
  isOld: string;
  isNew: string;
  /** For operations with many steps: whether each file is either unchanged or finished. */
  isBetween?: string;
}

/** The contents of a directory, compared with everything else. */
const same = (one: string, other: string): string => `diff -r --no-dereference ${one} ${other} >/dev/null`;
/** Asserts that each entry of a directory equals the other directory's entry. */
const partOf = (one: string, other: string): string =>
  `! diff -rq --no-dereference ${one} ${other} | grep -v '^Only in ${other}'`;
const modesIn = (pattern: string): string =>
  `! find tree -mindepth 1 -printf '%m\\n' | grep -qvxE '${pattern}'`;

const verbs: Readonly<Record<string, Verb>> = {
  upload: {
    prepare: "echo old > target",
    work: (files, home) => files.writeFile(uploadOf(join(home, "target"))),
    isOld: "[ $(cat target) = old ]",
    isNew: `[ $(stat -c %s target) = ${bigBytes} ] && ! tr -d u < target | grep -q .`,
  },
  copy: {
    work: (files, home) => files.copyPath({ from: join(home, "tree"), to: join(home, "to") }),
    isOld: "! [ -e to ]",
    isNew: same("to", "tree"),
  },
  "copy over another": {
    prepare: "mkdir to; echo old > to/old",
    work: (files, home) =>
      files.copyPath({ from: join(home, "tree"), to: join(home, "to"), overwrite: true }),
    isOld: "[ $(cat to/*) = old ]",
    isNew: same("to", "tree"),
  },
  move: {
    prepare: "cp -a tree same; mkdir to; echo old > to/old",
    work: (files, home) =>
      files.movePath({ from: join(home, "tree"), to: join(home, "to"), overwrite: true }),
    isOld: `[ $(cat to/*) = old ] && ${same("tree", "same")}`,
    isNew: `${same("to", "same")} && ! [ -e tree ]`,
    // The old file is removed after the rename, so at least one of both always exists.
    isBetween: `${same("to", "same")} || ${same("tree", "same")}`,
  },
  "move to another file system": {
    prepare: "cp -a tree same",
    work: (files, home, away) => files.movePath({ from: join(home, "tree"), to: join(away, "to") }),
    isOld: `${same("tree", "same")} && ! [ -e "$away/to" ]`,
    isNew: `${same('"$away/to"', "same")} && ! [ -e tree ]`,
    isBetween: `${same('"$away/to"', "same")} && ${partOf("tree", "same")}`,
  },
  archive: {
    prepare: "echo old > to.tar.gz",
    work: (files, home) =>
      files.createArchive({ paths: [join(home, "tree")], target: join(home, "to.tar.gz"), overwrite: true }),
    isOld: "[ $(cat to.tar.gz) = old ]",
    isNew: "tar -dzf to.tar.gz",
  },
  unpacking: {
    prepare: "tar -cf tree.tar tree; mkdir to",
    work: (files, home) => files.extractArchive({ path: join(home, "tree.tar"), target: join(home, "to") }),
    isOld: '[ -z "$(ls -A to)" ]',
    isNew: same("to/tree", "tree"),
  },
  "change of modes": {
    prepare: "chmod -R u=rwX,go= tree",
    work: (files, home) =>
      files.setPathAttributes({ path: join(home, "tree"), mode: "0755", recursive: true }),
    isOld: modesIn("600|700"),
    isNew: modesIn("755"),
    isBetween: modesIn("600|700|755"),
  },
  deletion: {
    prepare: "cp -a tree same",
    work: (files, home) => files.deletePaths({ paths: [join(home, "tree")] }),
    isOld: same("tree", "same"),
    isNew: "! [ -e tree ]",
    isBetween: partOf("tree", "same"),
  },
};

async function* uploadOf(path: string) {
  yield { path, overwrite: true, content: { contentType: "", data: Buffer.alloc(0) } };
  const data = Buffer.alloc(pieceBytes, "u");
  for (let sent = 0; sent < bigBytes; sent += data.length) {
    yield { content: { contentType: "", data } };
    await Promise.resolve();
  }
}

/** Duration of each operation without a kill, in milliseconds. */
const took = new Map<string, number>();

for (const victim of ["helper", "daemon"] as const) {
  rootTest(
    `a ${victim} that is killed at a random moment of any operation leaves the old or the new state`,
    async (t) => {
      t.timeout(isLong ? 3_600_000 : 600_000);
      const ground = await newGround();
      const { home, connection, daemon, as } = ground;
      const away = `${farBase}/svc-random-deaths-${process.pid}`;
      await mkdir(away);
      await chown(away, ownerUid, 60);
      t.not((await stat(away)).dev, (await stat(home)).dev);
      await using _away = { [Symbol.asyncDispose]: () => rm(away, { recursive: true, force: true }) };
      const shell = (script: string) => as(ownerUid, "sh", "-c", `away=${away}; cd ${home}; ${script}`);
      const holds = (script: string) =>
        shell(script).then(
          () => true,
          () => false,
        );
      const whole = `mkdir -p master/sub; head -c ${bigBytes} /dev/urandom > master/big; cd master/sub; seq ${smallFiles} | split -l 1 -a 4 -`;
      await shell(whole);
      const counts: Record<string, number> = { old: 0, new: 0, between: 0 };
      for (const [name, verb] of Object.entries(verbs)) {
        const begin = async () => {
          await shell(
            `find . "$away" -mindepth 1 -maxdepth 1 ! -name master -exec rm -rf {} +; cp -a master tree; ${verb.prepare ?? ""}`,
          );
          const files = connection.client(FileService, "grpc");
          await files.statPath({ path: home });
          return files;
        };
        let takesMs = took.get(name);
        if (takesMs === undefined) {
          const undisturbed = await begin();
          const began = performance.now();
          await verb.work(undisturbed, home, away);
          took.set(name, (takesMs = performance.now() - began));
          assert.ok(await holds(verb.isNew), `${name}: not done`);
        }
        for (let death = 0; death < deaths; death++) {
          const files = await begin();
          t.true(await holds(verb.isOld), `${name}: not prepared`);
          const helper = await helperOf(ground);
          const working = verb.work(files, home, away).then(
            () => true,
            () => false,
          );
          const afterMs = takesMs * Math.random();
          await sleep(afterMs);
          if (victim === "helper") process.kill(helper, "SIGKILL");
          else await daemon.kill();
          const isDone = await working;
          if (victim === "daemon") await daemon.restart();
          const what = `${name}, killed after ${afterMs.toFixed(0)} of ${takesMs.toFixed(0)} ms`;
          await eventually(async () => {
            assert.deepEqual(
              [
                ...(await leftOvers(home)),
                ...(await leftOvers(join(home, "to")).catch(() => [])),
                ...(await leftOvers(away)),
              ],
              [],
              what,
            );
          }, waitMs);
          const found = (await holds(verb.isNew)) ? "new" : (await holds(verb.isOld)) ? "old" : "between";
          counts[found] = (counts[found] ?? 0) + 1;
          if (found === "between")
            t.true(
              verb.isBetween !== undefined && (await holds(verb.isBetween)),
              `${what}: ${await shell("ls -laR . $away | grep -v x[a-z]*$ | head -60")}`,
            );
          if (isDone) t.is(found, "new", what);
        }
      }
      t.log(`left by operations: ${JSON.stringify(counts)}`);
    },
  );
}
