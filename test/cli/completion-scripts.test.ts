/** Completion in each shell, with svc's script and a svc with a fixed response. */
import test from "ava";
import { execFile, spawnSync } from "node:child_process";
import { chmod, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { completionScripts } from "../../src/cli/completion/completion-scripts.ts";
import { runSvc } from "./support/run-svc.ts";

const run = promisify(execFile);

const svc = `#!/bin/sh
case "$*" in
  *"app start"*) printf 'hello\\tHello: the first\n' ;;
  *"settings set"*) printf 'greeting=\\tWhat it says\n' ;;
  *"docker inspect"*) printf 'web:1\\tA container\n' ;;
  *"upgrade"*) printf '%s\\tA tag\n' 'v1;touch$IFS''pwned' ;;
esac
`;

/** The line after a tab. fish reports neither the space that it adds nor how it quotes the word. */
const cases = [
  { line: "svc app start h", completed: "svc app start hello " },
  { line: "svc app settings set hello gr", completed: "svc app settings set hello greeting=" },
  { line: "svc docker inspect w", completed: "svc docker inspect web:1 " },
  { line: "svc upgrade hello --version v", completed: "svc upgrade hello --version v1\\;touch\\$IFSpwned " },
  // Without candidates from svc, the shell completes file names.
  { line: "svc backup upload arch", completed: "svc backup upload archive.tar.zst " },
];

/** A shell at a terminal that prints its line at Ctrl-X. */
const zshrc = `PS1=
autoload -U compinit; compinit -u -D
source $HOME/script.zsh
show() { print -r -- "LINE[$BUFFER]"; BUFFER=; zle accept-line }
zle -N show
bindkey '^I' complete-word '^X' show
print READY
`;

/** Types each line, a tab and Ctrl-X into such a shell, and prints the output. */
const zshDriver = String.raw`zmodload zsh/zpty
zpty shell zsh -d -i
zpty -r shell seen '*READY*'
for line in "$@"; do
  zpty -w -n shell "$line"$'\t\x18'
  zpty -r shell seen '*LINE\[*\]*'
  print -r -- "$seen"
done
zpty -d shell
`;

/** By shell, returns the lines after the tab. */
const complete: Readonly<Record<"zsh" | "fish", (script: string) => Promise<string[]>>> = {
  zsh: async (script) => {
    const around = await surroundings(script);
    await writeFile(join(around.env.HOME, ".zshrc"), zshrc);
    const { stdout } = await run(
      "zsh",
      ["-f", "-c", zshDriver, "zsh", ...cases.map(({ line }) => line)],
      around,
    );
    return [...stdout.matchAll(/LINE\[(.*?)\]/g)].map(([, line]) => line ?? "");
  },
  fish: (script) =>
    Promise.all(
      cases.map(async ({ line, completed }) => {
        const command = `source ${script}; complete -C '${line}'`;
        const { stdout } = await run("fish", ["-c", command], await surroundings(script));
        const candidates = stdout
          .split("\n")
          .flatMap((each) => (each === "" ? [] : [each.split("\t", 1).join("")]));
        const before = line.slice(0, line.lastIndexOf(" ") + 1);
        return `${before}${candidates.join(",")}${completed.endsWith(" ") ? " " : ""}`;
      }),
    ),
};

/** A directory with a file to complete, and next to the script a home directory and a `svc`. */
async function surroundings(
  script: string,
): Promise<{ cwd: string; env: { PATH: string; HOME: string; TERM: string } }> {
  const dir = join(script, "..");
  const files = join(dir, "files");
  await mkdir(files, { recursive: true });
  await writeFile(join(files, "archive.tar.zst"), "");
  await writeFile(join(dir, "svc"), svc);
  await chmod(join(dir, "svc"), 0o755);
  return { cwd: files, env: { PATH: `${dir}:${process.env["PATH"] ?? ""}`, HOME: dir, TERM: "xterm" } };
}

for (const shell of ["zsh", "fish"] as const) {
  const why = spawnSync(shell, ["--version"]).error === undefined ? undefined : `needs ${shell}`;
  (why === undefined ? test : test.skip)(
    `${shell} completes candidates from svc, and files otherwise${why === undefined ? "" : ` (skipped: ${why})`}`,
    async (t) => {
      const dir = await mkdtemp(join(tmpdir(), "svc-complete-"));
      t.teardown(() => rm(dir, { recursive: true, force: true }));
      const script = join(dir, `script.${shell}`);
      await writeFile(script, completionScripts[shell]);
      t.deepEqual(
        await complete[shell](script),
        cases.map(({ completed }) => (shell === "fish" ? completed.replaceAll("\\", "") : completed)),
      );
    },
  );
}

test("bash completes candidates from svc, and files otherwise", async (t) => {
  const { stdout } = await runSvc(["completion", "bash"]);
  await t.notThrowsAsync(run("bash", ["-n", "-c", stdout]));
  const script = `svc() { printf '%s\\t\\n' hello help greeting= 'v1;touch$IFS\\pwned' '$(id)'; }\n${stdout}
COMP_WORDS=(svc app start h) COMP_CWORD=3 _svc_complete; printf '%s,' "\${COMPREPLY[@]}"; complete -p svc`;
  t.is(
    (await run("bash", ["-c", script])).stdout,
    "hello,help,greeting=,v1\\;touch\\$IFS\\\\pwned,\\$\\(id\\),complete -o default -F _svc_complete svc\n",
  );
});
