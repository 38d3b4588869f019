import { fork } from "node:child_process";
import { mkdtempDisposable, writeFile } from "node:fs/promises";
import { type IncomingMessage, request } from "node:http";
import { networkInterfaces, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import test from "ava";
import {
  AppAdoptedDataSchema,
  AppBackupsSchema,
  AppOperationSchema,
  AppOriginSchema,
  AppPortSchema,
} from "../../gen/svc/v1/app_pb.ts";
import { describeFailure } from "../../src/cli/output/failure.ts";
import { SvcError } from "../../src/errors.ts";
import { checkRun, type CommandCase } from "./support/command-case.ts";
import { appOf, startFakeDaemon } from "./support/fake-daemon.ts";
import { runSvc } from "./support/run-svc.ts";
import { main } from "../support/svc-main.ts";
import { nextEvent } from "../support/eventually.ts";
import { parseMoment } from "../../src/cli/input/option-values.ts";

const apps = [
  appOf({
    ...{ id: "hello", name: "Hello \x1b[31m", state: "RUNNING", enabled: true },
    ports: [create(AppPortSchema, { name: "http", protocol: "tcp", port: 8080 })],
  }),
  appOf({ id: "idle" }),
  appOf({ id: "slow", origin: create(AppOriginSchema, { kind: "directory", url: "/srv/slow" }) }),
  appOf({
    ...{ id: "loop", state: "STARTING", restarts: 3 },
    stateReason: "BACKOFF after 3 restarts: the program exited with code 3",
  }),
];

/** A note of `svc upgrade --all`. */
const slowSkipped = "slow: from /srv/slow, not checked; to install it again: svc upgrade slow\\n";

const cases: CommandCase[] = [
  {
    args: ["ls"],
    stdout: /^ID +NAME.* RESTARTS\nhello +Hello \\x1b\[31m +RUNNING[^]*\nidle[^]*\nslow[^]*\nloop .* 3 *\n/,
  },
  {
    args: ["status"],
    stdout: new RegExp(
      [
        "Daemon: +svc 1\\.2\\.3 \\(user\\)[^]*",
        "Configuration: /etc/svc/svc.toml",
        "Data: +/var/lib/svc",
        "Log: +systemd journal: journalctl -u svc",
        "Engine: +not responding \\(/var/run/docker.sock\\), so containers cannot run",
        "App limits: +cpus, memory \\(by cgroups\\)",
        "Apps: +4 installed, 1 running, 1 busy",
        "Failing: +loop; see why with: svc info loop",
      ].join("\n"),
    ),
  },
  {
    args: ["outdated"],
    stdout: /^ID +VERSION +AVAILABLE +IMAGES\nhello +1\.0\.0 +example\/hello:1, example\/db:2\n$/,
    stderr: /^Install it: svc app repull hello\n$/,
  },
  {
    args: ["app", "info", "hello"],
    stdout: /Ports: +http 8080\/tcp, game 9000\/udp\n[^]*Installed: +1d ago/,
  },
  {
    args: ["app", "start", "idle", "hello"],
    stdout: /^idle is RUNNING\nhello is RUNNING at http:\/\/127\.0\.0\.1:8080\n$/,
  },
  {
    args: ["app", "start", "nope", "idle"],
    exitCode: 3,
    stdout: /^idle is RUNNING\n$/,
    stderr: /no app "nope"/,
  },
  {
    args: ["app", "info", "nope"],
    exitCode: 3,
    stderr: /^svc: no app "nope"; list installed apps with: svc ls\n$/,
  },
  {
    args: ["app", "stop", "slow", "--timeout", "0.2"],
    exitCode: 7,
    stderr: /longer than 0\.2 s; give it more time with --timeout/,
  },
  {
    args: ["start", "Hello \x1b[31m"],
    exitCode: 3,
    stderr: /; the app named "Hello .*" has the ID "hello"\n$/,
  },
  { args: ["app", "remove", "idle"], exitCode: 2, stderr: /; pass --yes to confirm/ },
  {
    args: ["app", "remove", "idle", "idel"],
    exitCode: 3,
    stderr: /^svc: no app "idel"; did you mean "idle"\?\n$/,
  },
  {
    args: ["app", "rm", "idle", "--yes"],
    stdout: /^Removed idle and freed 3\.0 GiB\n$/,
    stderr: /1 archive of idle stays/,
  },
  {
    args: ["app", "clone", "hello"],
    stdout: /Cloned hello to hello-2 \(1\.0 KiB\)/,
    stderr: /^hello was running/,
  },
  {
    args: ["app", "clone", "sharer"],
    exitCode: 5,
    stderr: /would both use the volume \\x1b\[2J; pass --share-volumes to let it\n$/,
  },
  {
    args: ["app", "clone", "sharer", "--share-volumes"],
    stdout: /^Cloned sharer to sharer-2/,
    stderr: /^sharer was running/,
  },
  { args: ["ls", "-q"], stdout: /^([a-z0-9-]+\n)+$/ },
  { args: ["ls", "--columns", "state,id"], stdout: /^STATE +ID\n([A-Z]+ +[a-z0-9-]+\n)+$/ },
  { args: ["ls", "--columns", "id,owner"], stdout: /^ID +OWNER\nhello +ada\n/ },
  {
    args: ["ls", "--columns", "state,colour"],
    exitCode: 2,
    stderr: /unknown column "colour"; use: id, name, state/,
  },
  { args: ["ls", "-q", "--columns", "id"], exitCode: 2, stderr: /--quiet prints only the first column/ },
  { args: ["source", "list", "-q"], stdout: /^([a-z0-9-]+\n)*$/ },
  { args: ["app", "logs", "hello", "-n", "7"], stdout: /^one of 7 \x1b\]0;title\x07\ntwo of hello\n$/ },
  { args: ["app", "logs", "hello", "-n", "x"], exitCode: 2, stderr: /must be 0 to 100000/ },
  {
    args: ["app", "logs", "hello", "--since", "noon"],
    exitCode: 2,
    stderr: /must be how long ago, such as 10m/,
  },
  { args: ["app", "logs", "hello", "--since", "10m", "-n", "1"], stdout: /^two of hello\n$/ },
  {
    args: ["logs", "hello", "idle", "--service", "db"],
    exitCode: 2,
    stderr: /--service needs exactly one app/,
  },
  { args: ["stop", "all"], exitCode: 2, stderr: /^svc: no app "all"; for every app, pass --all\n/ },
  { args: ["logs", "hello", "-100"], exitCode: 2, stderr: /^svc: for the last lines: -n 100\n/ },
  { args: ["logs", "hello", "--tail", "all"], stdout: /^one of 100000 / },
  { args: ["settings", "list", "hello"], stdout: /^KEY/ },
  {
    args: ["settings", "set", "hello", "port=0.0.0.0:81"],
    exitCode: 2,
    stderr: /^svc: port is only the number: port=81; the address is another setting, such as host, or /,
  },
  {
    args: ["settings", "set", "port=81", "hello"],
    exitCode: 2,
    stderr: /^svc: name the app first: svc settings set hello port=81\n$/,
  },
  { args: ["backup", "prune"], exitCode: 2, stderr: /mean: svc backup policy ID set --keep COUNT\n$/ },
  { args: ["operations", "log", "x"], exitCode: 2, stderr: /^svc: unknown command "log"\nDid you mean: / },
  { args: ["outdated", "hello"], exitCode: 2, stderr: /for one app: svc upgrade hello --dry-run\n/ },
  {
    args: ["restore", "hello", "latest", "data"],
    exitCode: 2,
    stderr: /restore only this path: --paths data; to restore to a new app: --as-new --name data\n/,
  },
  { args: ["upgrade", "hello", "latest"], exitCode: 2, stderr: /name only the app: svc upgrade hello\n$/ },
  {
    args: ["schedule", "add", "daily", "shell", "echo hi"],
    exitCode: 2,
    stderr: /; pass the command as --command 'echo hi'\n/,
  },
  { args: ["upgrade", "all"], exitCode: 2, stderr: /^svc: no app "all"; for every app, pass --all\n/ },
  { args: ["info", "all"], exitCode: 3, stderr: /^svc: no app "all"; for every app: \$\(svc ls -q\)\n$/ },
  { args: ["stauts"], exitCode: 2, stderr: /Did you mean: svc status\n$/ },
  { args: ["ls", "--format", "json"], stdout: /^\{\s*"apps": \[/ },
  {
    args: ["upgrade", "hello", "v1.0.0"],
    exitCode: 2,
    stderr: /^svc: for a version: svc upgrade hello --version v1\.0\.0\n/,
  },
  {
    args: ["settings", "set", "hello", "port=80"],
    stdout: /^KEY/,
    // No advice to restart, which would fail.
    stderr: /^warning: port 80 \("http"\) is in use by app "web"\n$/,
  },
  {
    args: ["settings", "set", "hello", "port=81"],
    stdout: /^KEY/,
    stderr: /^Restart to apply the new settings: svc restart hello\n$/,
  },
  {
    args: ["settings", "set", "loop", "port=81"],
    stdout: /^KEY/,
    stderr: /^Start it with the new settings: svc start loop\n$/,
  },
  { args: ["settings", "set", "idle", "port=81"], stdout: /^KEY/ },
  { args: ["settings", "set", "hello", "port", "8090"], exitCode: 2, stderr: /^svc: write port=8090\n/ },
  {
    args: ["settings", "hello", "port=8090"],
    exitCode: 2,
    stderr: /^svc: to change a setting: svc settings set hello port=8090\n/,
  },
  {
    args: ["restore", "hello", "latest", "data/visits"],
    exitCode: 2,
    stderr: /; to restore only this path: --paths data\/visits\n/,
  },
  {
    args: ["schedule", "add", "0", "3", "*", "*", "*", "shell"],
    exitCode: 2,
    stderr: /too many arguments: [^\n]*; quote the trigger: '0 3 \* \* \*'\n/,
  },
  {
    args: ["schedule", "add", "shell", "--cron", "0 3 * * *"],
    exitCode: 2,
    stderr: /unknown option --cron; the trigger is the first argument, in quotes/,
  },
  {
    args: ["restore", "hello", "latest", "--as-new", "old"],
    exitCode: 2,
    stderr: /; to restore to a new app: --as-new --name old\n/,
  },
  {
    args: ["app", "settings", "hello"],
    stdout: /port +8080 +8080 +Where it listens\ngreeting +hi +hello[^]*\npassword +\(not set\)/,
  },
  { args: ["app", "settings", "hello", "greeting"], stdout: /^hi\n$/ },
  {
    args: ["app", "settings", "hello", "nope"],
    exitCode: 3,
    stderr: /see all with: svc settings hello\n$/,
  },
  {
    args: ["app", "settings", "set", "hello", "port=9090"],
    stdout: /port +9090/,
    stderr: /svc restart hello/,
  },
  {
    args: ["app", "settings", "set", "hello", "wrong=1"],
    exitCode: 2,
    stderr: /^svc: wrong is not a setting/,
  },
  { args: ["app", "settings", "set", "hello", "=1"], exitCode: 2, stderr: /must be key=value/ },
  { args: ["app", "settings", "set", "hello"], exitCode: 2, stderr: /either key=value or --file/ },
  {
    args: ["app", "settings", "set", "hello", "greeting"],
    exitCode: 2,
    stderr:
      /^svc: no terminal to type the value of greeting: pass greeting=VALUE, --set-file greeting=PATH or --set-stdin greeting\n$/,
  },
  { args: ["app", "settings", "unset", "hello", "greeting"], stdout: /greeting +hello/, stderr: /restart/ },
  {
    args: ["install", "closed"],
    stdout:
      /^Installed closed 1\.0\.0 on 127\.0\.0\.1:8080, 127\.0\.0\.1:9000\/udp\. Start it: svc start closed\n$/,
    stderr: /^install closed: \[1\/2\] Fetching · main\n$/,
  },
  {
    args: ["install", "open"],
    stdout: /^Installed open 1\.0\.0 on \[::\]:8080, /,
    stderr: /^install open: \[1\/2\] Fetching/,
  },
  {
    args: ["install", "web"],
    stdout: /^Installed web 1\.0\.0\. Start it: svc start web\n$/,
    stderr: /^install web: \[1\/2\] Fetching · main\n$/,
  },
  ...["--version", "--tag"].map((option) => ({
    args: ["install", "web", option, "v1.2.0"],
    stdout: /^Installed web v1\.2\.0\. /,
    stderr: /Fetching/,
  })),
  ...["--version", "--tag"].map((option) => ({
    args: ["upgrade", "idle", option, "v2.1.0"],
    stdout: /^Switched idle from 1\.0\.0 to v2\.1\.0\n$/,
    stderr: /Fetching\n$/,
  })),
  {
    args: ["upgrade", "idle", "--version", "0.9.0"],
    stdout: /^Switched idle from 1\.0\.0 to 0\.9\.0\n$/,
    stderr:
      /^The data of idle did not change\. To return to earlier data: svc backup ls idle, then svc restore idle ARCHIVE --stop\nThe next svc upgrade idle or svc upgrade --all installs the newest version again\.$/m,
  },
  {
    args: ["install", "./luckless", "--start"],
    exitCode: 5,
    stderr: /did not start: the program exited with code 1; see what it printed with: svc logs luckless\n$/,
  },
  {
    args: ["install", "licensed"],
    exitCode: 5,
    stderr:
      /\nsvc: licensed requires that you accept its license \(LICENSE: "Be kind\.\\x1b\[2J"\) and requires permissions on the host \(the app wants the moon\); run this in a terminal to read and accept, or pass --accept-license and --accept-permissions\n$/,
  },
  {
    args: ["install", "licensed", "--accept-license"],
    exitCode: 5,
    stderr:
      /\nsvc: licensed requires permissions on the host \(the app wants the moon\); run this .*, or pass --accept-permissions\n$/,
  },
  {
    args: ["install", "licensed", "--accept-permissions"],
    exitCode: 5,
    stderr:
      /\nsvc: licensed requires that you accept its license \(LICENSE: "Be kind\.\\x1b\[2J"\); run this .*, or pass --accept-license\n$/,
  },
  {
    args: ["install", "licensed", "--accept-license", "--accept-permissions"],
    stdout: /^Installed licensed/,
    stderr: /Fetching/,
  },
  {
    args: ["install", "twice"],
    exitCode: 5,
    stderr: /choose one: svc install main\/twice, svc install other\/twice/,
  },
  {
    args: ["install", "examples"],
    exitCode: 3,
    stderr: /no package "examples"; to install the local path: svc install \.\/examples\n$/,
  },
  {
    args: ["install", "examples/hello/svc.yaml"],
    exitCode: 2,
    stderr:
      /is not a package id, .*; to install the local path: svc install \.\/examples\/hello\/svc\.yaml\n$/,
  },
  {
    args: ["install", "src/cli"],
    exitCode: 2,
    stderr: /no source "src" is configured; .*; to install the local path: svc install \.\/src\/cli\n$/,
  },
  {
    args: ["install", "src/cli", "--dry-run"],
    exitCode: 2,
    stderr: /no source "src" is configured; to install the local path: svc install \.\/src\/cli\n$/,
  },
  {
    args: ["install", "nowhere"],
    exitCode: 3,
    stderr: /no package "nowhere"; list them with: svc search\n$/,
  },
  {
    args: ["install", "nginx:1.27"],
    exitCode: 3,
    stderr: /; to run an image, write a compose file: svc install \.\/compose\.yaml\n$/,
  },
  {
    args: ["credential", "add", "x", "example.org"],
    exitCode: 2,
    stderr: /^svc: --username <name> is required\nTry: svc credential add --help\n$/,
  },
  {
    args: ["install", "./nowhere"],
    exitCode: 2,
    stderr: /^svc: \/[^\n]*\/nowhere does not exist; check the path, or list packages with: svc search\n$/m,
  },
  {
    args: ["install", "dying"],
    exitCode: 6,
    stderr:
      /\nsvc: install dying was interrupted: the daemon is stopping; see how it ended when the daemon runs again: svc operations ls\n$/,
  },
  {
    args: ["install", "dying", "--name", "second"],
    exitCode: 6,
    stderr: /\nsvc: install second was interrupted/,
  },
  {
    args: ["install", "examples/miniflux/compose.yaml", "--dry-run"],
    stderr: /^(?![^]*install the local path)/,
  },
  {
    args: ["install", "broken"],
    exitCode: 5,
    stderr: /\| cc: \\x1b\[31mno such file\nsvc: the build of broken failed/,
  },
  {
    args: ["upgrade", "idle", "--version", "2.0"],
    stdout: /^Switched idle from 1\.0\.0 to 2\.0\n$/,
    stderr: /Fetching/,
  },
  {
    args: ["upgrade", "idle", "--version", "1.0.0"],
    stdout: /^Installed idle 1\.0\.0 again\n$/,
    stderr: /Fetching/,
  },
  {
    args: ["upgrade", "slow"],
    stdout: /^Installed slow 1\.0\.0 again from \/srv\/slow\n$/,
    stderr: /Fetching/,
  },
  {
    args: ["upgrade", "hello", "--no-restart"],
    exitCode: 5,
    stderr:
      /^svc: app "hello" is running; stop it before upgrading it: svc stop hello; or omit --no-restart\n$/,
  },
  {
    args: ["app", "start", "crowded"],
    exitCode: 5,
    stderr: /is in use by app "hello"; the package fixes the number\n$/,
  },
  { args: ["source", "show", "web"], stdout: /^Package: +main\/web\n/, stderr: /svc install main\/web/ },
  { args: ["source", "show", "main/web"], stdout: /^Package: +main\/web\n/, stderr: /svc install main\/web/ },
  { args: ["source", "show", "nope"], exitCode: 3, stderr: /no source or package has the name "nope"; / },
  {
    args: ["source", "show", "twice"],
    exitCode: 2,
    stderr: /choose one: main\/twice, other\/twice\nTry: svc source show --help\n$/,
  },
  {
    args: ["app", "stop", "busy"],
    exitCode: 5,
    stderr:
      /^svc: app "busy" is being copied; try again when that has ended; see its progress with: svc info busy\n$/,
  },
  {
    args: ["upgrade", "--all", "--no-restart"],
    // An app that is up to date does not have to be stopped.
    stdout: /^idle is up to date(?![^]*slow)[^]*loop is up to date/m,
    stderr: new RegExp(
      `^${slowSkipped}Skipped hello, which is RUNNING: omit --no-restart to upgrade it\\n(?!.*Skipped)`,
      "s",
    ),
  },
  {
    args: ["upgrade", "hello", "--version", "2.0"],
    stdout: /^Switched hello from 1\.0\.0 to 2\.0, and started it again\n$/,
    stderr: /Fetching/,
  },
  {
    args: ["upgrade", "--all"],
    stdout: /hello is up to date[^]*idle is up to date(?![^]*slow)/,
    stderr: new RegExp(`^${slowSkipped}upgrade hello: Fetching`),
  },
  { args: ["upgrade"], exitCode: 2, stderr: /or pass --all/ },
  {
    args: ["disk"],
    stdout: /hello +- +2\.0 KiB +1 B +0 B +2\.0 KiB/,
    stderr: /40 B of 100 B used \(50\.0%\), 40 B free/,
  },
  {
    args: ["ports"],
    stdout:
      /CONFLICT *\n8080 +tcp +hello +web +also used by idle *\n8080 +tcp +idle +web +also used by hello *\n9090 +tcp +slow +web +in use by process 12 \(node\) *\n8080 +udp +slow +dns *\n$/,
  },
  { args: ["stats", "hello"], stdout: /hello +12\.3% +1\.0 KiB/ },
  { args: ["stats", "idle"], stdout: /^$/, stderr: /^No such app is running\.\n$/ },
  {
    args: ["kill", "x"],
    exitCode: 2,
    stderr:
      /^svc: "x" is not a process ID: use a number from 1 to 4194304, as shown by svc top; to stop an app: svc stop ID\n$/,
  },
  { args: ["events", "hello", "--app", "web"], exitCode: 2, stderr: /^svc: name one app, or pass --app/ },
  {
    args: ["events", "hello", "--kind", "app.crashd"],
    exitCode: 2,
    stderr: /^svc: unknown kind "app\.crashd"; use one of: begin, .*app\.crashed/,
  },
  {
    args: ["stats", "nope"],
    exitCode: 3,
    stdout: /^$/,
    stderr: /^svc: no app "nope"; list installed apps with: svc ls\n$/,
  },
  {
    args: ["stats", "hello", "nope"],
    exitCode: 3,
    stdout: /^ID.*\nhello +12\.3%.*\n$/,
    stderr: /^svc: no app "nope"; list installed apps with: svc ls\n$/,
  },
  { args: ["stats", "--json", "nope"], exitCode: 3, stdout: /^$/, stderr: /^\{"error":"no app \\"nope\\""/ },
  { args: ["stats", "--watch", "nope"], exitCode: 3, stdout: /^$/, stderr: /^svc: no app "nope"/ },
  { args: ["stats", "--watch"], stdout: /1\.0%[^]*2\.0%/ },
  { args: ["stacks"], stdout: /^STACK/ },
  { args: ["api", "AppService.GetApp", '{"id":"idle"}'], stdout: /"id": "idle"/ },
  {
    args: ["api", "AppService.CloneAppStream", '{"id":"idle"}'],
    stdout: /^\{"progress".*\n\{"result".*"copied_bytes":1024.*\n$/,
  },
  { args: ["api", "svc.v1.AppService/listApps"], stdout: /"next_page_token": "1"/ },
  {
    args: ["api", "AppService.Nope"],
    exitCode: 2,
    stderr: /there is no method "AppService\.Nope"; see all with: svc api --list/,
  },
  { args: ["api", "AppService.GetApp", "{"], exitCode: 2, stderr: /is not valid JSON/ },
  { args: ["api", "AppService.GetApp", '{"x":1}'], exitCode: 2, stderr: /GetAppRequest.*"x"/ },
  { args: ["api", "AppService.GetApp", "{}"], exitCode: 2, stderr: /id/ },
  {
    args: ["api", "AppService.RepullApp", '{"id":"idle"}'],
    exitCode: 1,
    stderr: /does not support the method/,
  },
  { args: ["api", "--list"], stdout: /AppService\.ListApps +unary +user/ },
  { args: ["api", "AppService.InstallApp", "--describe"], stdout: /spec +string +yes/ },
  {
    args: ["start", "idle", "hello"],
    stdout: /^idle is RUNNING\nhello is RUNNING at http:\/\/127\.0\.0\.1:8080\n$/,
  },
  { args: ["ps", "-q"], stdout: /^hello\nidle\nslow\nloop\n$/ },
  { args: ["app", "ls", "-q"], stdout: /^hello\nidle\nslow\nloop\n$/ },
  { args: ["app", "list", "-q"], stdout: /^hello\nidle\nslow\nloop\n$/ },
  ...[["info"], ["inspect"], ["status"], ["app", "status"], ["app", "inspect"]].map((words): CommandCase => ({
    args: [...words, "hello"],
    stdout: /^ID: +hello\n/,
  })),
  {
    args: ["info", "idle", "hello"],
    stdout:
      /^ID: +idle\n[^]*\n\nID: +hello\n[^]*\nAddress: +http:\/\/127\.0\.0\.1:8080\n[^]*\nCPU: +12\.3%\nMemory: +1\.0 KiB\nDisk: +2\.0 KiB\n/,
  },
  { args: ["status", "--verbose"], stdout: /\nCapabilities: +app\.upgrade\n/ },
  { args: ["stop", "hello", "--all"], exitCode: 2, stderr: /^svc: name the apps, or pass --all\n$/ },
  {
    args: ["start", "--all", "--no-wait"],
    stdout: /^hello is RUNNING[^]*\nidle is[^]*\nslow is[^]*\nloop is/,
  },
  { args: ["restart", "--all", "--no-wait"], stdout: /^hello is RUNNING[^\n]*\n$/ },
  { args: ["ls", "-o", "name"], stdout: /^hello\nidle\nslow\nloop\n$/ },
  {
    args: ["ls", "-o", "wide"],
    stdout: /^ID.* URL +PACKAGE +DIRECTORY\nhello .* http:\/\/127\.0\.0\.1:8080 *\n/,
  },
  { args: ["ls", "-o", "yaml"], stdout: /^---\napps:\n {2}- id: hello\n {4}name: / },
  { args: ["ls", "-o", "json"], stdout: /^\{\n {2}"apps": \[/ },
  {
    args: ["ls", "-o", "xml"],
    exitCode: 2,
    stderr: /^svc: --output must be one of json, yaml, wide, name; got "xml"\n/,
  },
  {
    args: ["ls", "--format", "{{.id}}\\t{{ .state }}\\t{{.placement.x}}{{json .ports}}"],
    stdout: /^hello\tRUNNING\t\[\{"name":"http"[^\n]*\}\]\nidle\tSTOPPED\t\[\]\n/,
  },
  {
    args: ["ls", "--format", "{{.Names}}"],
    exitCode: 2,
    stderr: /^svc: --format: unknown field "Names"; fields: .*\bid, .*\bstate\b/,
  },
  { args: ["info", "idle", "--format", "{{.id}} {{.restarts}}"], stdout: /^idle 0\n$/ },
  { args: ["info", "nope", "-o", "json"], exitCode: 3, stderr: /^\{"error":"no app/ },
  { args: ["info", "nope", "-o", "yaml"], exitCode: 3, stderr: /^svc: no app "nope"/ },
  { args: ["ls", "-q", "--sort", "id"], stdout: /^hello\nidle\nloop\nslow\n$/ },
  { args: ["ls", "-q", "--sort", "-id"], stdout: /^slow\nloop\nidle\nhello\n$/ },
  { args: ["ls", "--sort", "colour"], exitCode: 2, stderr: /unknown column "colour"; use: id, name/ },
  { args: ["ls", "--sort", "id", "--json"], exitCode: 2, stderr: /--sort sorts tables/ },
  { args: ["rm", "idle", "--dry-run"], stdout: /^Would remove idle and free 2\.0 KiB\n$/ },
  { args: ["rm", "idel", "--dry-run"], exitCode: 3, stderr: /no app "idel"/ },
  {
    args: ["backup", "create", "idle", "--dry-run", "--storage", "nas"],
    stdout: /^Would back up idle \(1\.0 KiB of data and volumes\) to nas\n$/,
  },
  { args: ["upgrade", "idle", "--dry-run"], stdout: /^idle is up to date at 1\.0\.0\n$/ },
  {
    args: ["upgrade", "--all", "--dry-run"],
    stdout: /^hello is up to date(?![^]*slow)/,
    stderr: new RegExp(`^${slowSkipped}$`),
  },
  {
    args: ["upgrade", "slow", "--dry-run"],
    stdout: /^Would install slow 1\.0\.0 again from \/srv\/slow\n/,
  },
  {
    args: ["upgrade", "hello", "--dry-run", "--version", "2.0"],
    stdout: /^Would upgrade hello from 1\.0\.0 to 2\.0, and restart it\n$/,
  },
  {
    args: ["upgrade", "hello", "--dry-run", "--version", "2.0", "--no-restart"],
    stdout: /^Would skip hello, which is RUNNING: omit --no-restart to upgrade it\n$/,
  },
  {
    args: ["upgrade", "idle", "--dry-run", "--version", "2.0"],
    stdout: /^Would upgrade idle from 1\.0\.0 to 2\.0\n$/,
  },
  {
    args: ["install", "main/web@1.0", "--dry-run"],
    stdout: /^Package: +main\/web\n/,
    stderr: /svc install main\/web/,
  },
  {
    args: ["install", "https://git.example.org/web.git", "--dry-run"],
    exitCode: 2,
    stderr: /does not read git URLs: clone the repository, and pass its directory\n$/,
  },
  { args: ["install", "./web", "--dry-run"], exitCode: 2, stderr: /\/web does not exist\n$/ },
  {
    args: ["logs", "--all", "hello"],
    exitCode: 2,
    stderr: /name the apps, or pass --all/,
  },
  { args: ["logs", "hello", "--grep", "TWO"], stdout: /^$/ },
  { args: ["logs", "hello", "--grep", "two|three"], stdout: /^two of hello\n$/ },
  { args: ["logs", "hello", "--grep", "of", "-n", "1"], stdout: /^two of hello\n$/ },
  {
    args: ["logs", "hello", "--grep", "("],
    exitCode: 2,
    stderr: /^svc: --grep must be a regular expression: [^\n]*; got "\("\n/,
  },
  { args: ["logs", "hello", "--until", "2026-01-01T12:00:01Z"], stdout: /^one of 100000 [^\n]*\n$/ },
  { args: ["logs", "hello", "-f", "--until", "1h"], exitCode: 2, stderr: /cannot be used with/ },
  {
    args: ["logs", "hello", "idle"],
    stdout: /^hello \| one [^\n]*\nidle {2}\| one [^\n]*\nhello \| two of hello\nidle {2}\| two of idle\n$/,
  },
  { args: ["logs", "hello", "nope"], exitCode: 3, stderr: /no app "nope"/ },
  { args: ["version"], stdout: /^Program: svc 1\.2\.3\nDaemon: +svc 1\.2\.3 on test\n$/ },
  { args: ["update", "hello"], stdout: /^hello is up to date/, stderr: /Fetching/ },
  { args: ["settings", "hello", "greeting"], stdout: /^hi\n$/ },
  { args: ["clone", "idle"], stdout: /^Cloned idle to idle-2 /, stderr: /^idle was running/ },
  { args: ["open", "hello"], stdout: /^http:\/\/127\.0\.0\.1:8080\n$/ },
  { args: ["open", "hello", "--print", "--json"], stdout: /"url": "http:\/\/127\.0\.0\.1:8080"/ },
  { args: ["file", "get", "hello:/"], exitCode: 2, stderr: /^svc: "hello:\/" is not a file name\n/ },
  { args: ["open", "idle"], exitCode: 5, stderr: /not running; start it first: svc start idle\n$/ },
  { args: ["open", "loop"], exitCode: 5, stderr: /^svc: app "loop" is not running; start it first/ },
  {
    args: ["status", "x", "y"],
    exitCode: 2,
    stderr: /^svc: too many arguments: expected \[id\], got x, y\nTry: svc status --help\n$/,
  },
  { args: ["app", "info", ""], exitCode: 2, stderr: /^svc: id must not be empty\n$/ },
  { args: ["app", "remove", "", "--yes"], exitCode: 2, stderr: /^svc: id must not be empty\n$/ },
  {
    args: ["reload"],
    exitCode: 2,
    stderr: /^svc: unknown command "reload"\nDid you mean: svc restart ID, or svc daemon reload\n$/,
  },
  { args: ["catalog"], exitCode: 2, stderr: /\nDid you mean: svc search\n$/ },
  { args: ["purge", "x"], exitCode: 2, stderr: /\nDid you mean: svc rm ID\n$/ },
  { args: ["port", "x", "9000"], exitCode: 2, stderr: /svc ports ID, or svc settings set ID port=PORT\n$/ },
  { args: ["share", "x"], exitCode: 2, stderr: /: svc help reach-it-from-another-computer\n$/ },
  { args: ["versions", "x"], exitCode: 2, stderr: /: svc outdated, or svc upgrade ID --version TAG\n$/ },
  { args: ["network"], exitCode: 2, stderr: /\nDid you mean: svc docker networks\n$/ },
  { args: ["container", "ls"], exitCode: 2, stderr: /\nDid you mean: svc ls, or svc docker ps\n$/ },
  { args: ["image", "ls"], exitCode: 2, stderr: /mean: svc docker images, or svc app image ID\n$/ },
  { args: ["volume"], exitCode: 2, stderr: /mean: svc docker volumes, or svc file, or svc disk\n$/ },
  { args: ["docker", "volume", "ls"], exitCode: 2, stderr: /mean: svc docker volumes\n$/ },
  { args: ["docker", "container", "ls"], exitCode: 2, stderr: /mean: svc docker ps\n$/ },
  { args: ["images"], exitCode: 2, stderr: /\nDid you mean: svc docker images\n$/ },
  {
    args: ["rm", "idle", "--yes"],
    stdout: /^Removed idle /,
    stderr: /^1 archive of idle stays\. See: svc backup ls idle\n$/,
  },
  { args: ["uninstall", "idle", "--yes"], stdout: /^Removed idle /, stderr: /1 archive of idle stays/ },
  { args: ["delete", "x"], exitCode: 2, stderr: /\nDid you mean: svc rm\n$/ },
  { args: ["log", "x"], exitCode: 2, stderr: /"log"\nDid you mean: svc logs\n$/ },
  { args: ["app", "update", "x"], exitCode: 2, stderr: /"update"\nDid you mean: svc update\n$/ },
  { args: ["app", "open", "x"], exitCode: 2, stderr: /\nDid you mean: svc open\n$/ },
  // Words that only read never lead to commands that change something.
  { args: ["app", "show", "x"], exitCode: 2, stderr: /"show"\nDid you mean: svc info\n$/ },
  { args: ["app", "stat", "x"], exitCode: 2, stderr: /"stat"\nDid you mean: svc info\n$/ },
  { args: ["rollback", "x"], exitCode: 2, stderr: /\nDid you mean: svc upgrade ID --version OLD\n$/ },
  { args: ["jobs"], exitCode: 2, stderr: /\nDid you mean: svc schedule list\n$/ },
  { args: ["state", "x"], exitCode: 2, stderr: /"state"\nDid you mean: svc info\n$/ },
  { args: ["stat"], exitCode: 2, stderr: /"stat"\nDid you mean: svc stats\n$/ },
  { args: ["backup", "status", "x"], exitCode: 2, stderr: /"status"\nDid you mean: svc backup show\n$/ },
  {
    args: ["pull", "x"],
    exitCode: 2,
    stderr: /"pull"\nDid you mean: svc upgrade ID, or svc app repull ID\n$/,
  },
  {
    args: ["history", "x"],
    exitCode: 2,
    stderr: /"history"\nDid you mean: svc events, or svc operations ls\n$/,
  },
  { args: ["diff", "x"], exitCode: 2, stderr: /"diff"\nTry: svc --help\n$/ },
  { args: ["repo", "list"], exitCode: 2, stderr: /"repo"\nDid you mean: svc source\n$/ },
  {
    args: ["token", "list"],
    exitCode: 2,
    stderr: /^svc: unknown command "list"\nDid you mean: svc token status\n$/,
  },
  { args: ["schedule", "delete", "x"], exitCode: 2, stderr: /\nDid you mean: svc schedule remove\n$/ },
  { args: ["schedule", "logs", "x"], exitCode: 2, stderr: /mean: svc schedule runs JOB --output\n$/ },
  { args: ["ls", "hello"], exitCode: 2, stderr: /expected none, got hello; for one app: svc info hello\n/ },
  {
    args: ["file", "ls", "hello", "data"],
    exitCode: 2,
    stderr: /expected <path>, got hello, data; for a path in an app: svc file ls hello:data\n/,
  },
  {
    args: ["file", "ls", "hello"],
    exitCode: 2,
    stderr: /^svc: "hello" is neither an absolute path nor APP:PATH; for the directory of an app: hello:\n/,
  },
  {
    args: ["backup", "ls", "hello", "latest"],
    exitCode: 2,
    stderr: /expected \[id\], got hello, latest; for one archive: svc backup show hello latest\n/,
  },
  { args: ["clone", "idle", "two"], stdout: /^Cloned idle to two /, stderr: /^idle was running/ },
  { args: ["clone", "idle", "two", "--name", "three"], exitCode: 2, stderr: /^svc: name the copy once\n/ },
  { args: ["cp", "x:data/y", "."], exitCode: 2, stderr: /: svc file get APP:PATH \., or svc file put FILE / },
  { args: ["file", "cp", "hello:data/y", "."], exitCode: 2, stderr: /: svc file get hello:data\/y \.\n$/ },
  { args: ["file", "edit", "x:y"], exitCode: 2, stderr: /mean: svc file get\n$/ },
  {
    args: ["schedule", "add", "daily", "backup", "x"],
    exitCode: 2,
    stderr: /expected <trigger> <action>, got .*; name the app with --app x\n/,
  },
  {
    args: ["install", "hello", "--port", "9000"],
    exitCode: 2,
    stderr: /^svc: unknown option --port; choose the port with --set port=NUMBER\nTry/,
  },
  {
    args: ["clone", "hello", "--start"],
    exitCode: 2,
    stderr: /^svc: unknown option --start; the copy is stopped; start it with svc start\nTry/,
  },
  {
    args: ["backup", "storage", "add", "far", "--secret-key", "x"],
    exitCode: 2,
    stderr: /unknown option --secret-key; pass --secret-key-file FILE, or - for stdin; /,
  },
  {
    args: ["info"],
    exitCode: 2,
    stderr: /^svc: missing argument <id>: the ID of an app; see them with: svc ls\nTry: svc info --help\n$/,
  },
  {
    args: ["docker", "prune"],
    exitCode: 2,
    stderr: /missing argument <kind>: images, volumes, build-cache\n/,
  },
  {
    args: ["logs", "hello", "--lines", "5"],
    exitCode: 2,
    stderr: /^svc: unknown option --lines; choose the number of lines with -n\nTry/,
  },
  {
    args: ["restore", "hello", "latest", "--to", "x"],
    exitCode: 2,
    stderr: /unknown option --to; to save files elsewhere: svc backup get, /,
  },
  {
    args: ["upgrade", "hello", "--rollback"],
    exitCode: 2,
    stderr: /unknown option --rollback; to go back: --version OLD\n/,
  },
  { args: ["top", "hello"], exitCode: 2, stderr: /got hello; for one app: svc stats hello\n/ },
  { args: ["app", "console", "x"], exitCode: 2, stderr: /mean: svc app attach ID\n$/ },
  { args: ["schedule", "pause", "x"], exitCode: 2, stderr: /mean: svc schedule disable\n$/ },
  { args: ["settings", "reset", "x", "port"], exitCode: 2, stderr: /mean: svc settings unset\n$/ },
  { args: ["token", "create"], exitCode: 2, stderr: /mean: svc token issue\n$/ },
  { args: ["backup", "--all"], exitCode: 2, stderr: /back up every app with: svc backup create --all\n/ },
  { args: ["backup", "schedule", "x", "y"], exitCode: 2, stderr: /mean: svc backup policy ID set\n$/ },
  { args: ["swarm"], exitCode: 2, stderr: /mean: svc help run-on-a-swarm\n$/ },
  { args: ["app", "rollback", "x"], exitCode: 2, stderr: /\nDid you mean: svc upgrade ID --version OLD\n$/ },
  { args: ["docker", "run", "nginx"], exitCode: 2, stderr: /\nDid you mean: svc install PACKAGE --start, / },
  { args: ["docker", "exec", "x", "sh"], exitCode: 2, stderr: /\nDid you mean: svc exec\n$/ },
  {
    args: ["docker", "compose", "up"],
    exitCode: 2,
    stderr: /mean: svc install \.\/compose\.yaml, or svc stacks\n$/,
  },
  { args: ["docker", "system", "df"], exitCode: 2, stderr: /svc docker df/ },
  { args: ["kubectl", "get", "pods"], exitCode: 2, stderr: /\nDid you mean: svc help cheat-sheet\n$/ },
  { args: ["systemctl", "status"], exitCode: 2, stderr: /\nDid you mean: svc help cheat-sheet\n$/ },
  { args: ["is-active", "x"], exitCode: 2, stderr: /\nDid you mean: svc info\n$/ },
  { args: ["daemon-reload"], exitCode: 2, stderr: /\nDid you mean: svc daemon reload\n$/ },
  { args: ["bash", "x"], exitCode: 2, stderr: /\nDid you mean: svc shell ID\n$/ },
  { args: ["startup"], exitCode: 2, stderr: /\nDid you mean: svc help cheat-sheet\n$/ },
  { args: ["backup", "forget", "x", "y"], exitCode: 2, stderr: /\nDid you mean: svc backup rm\n$/ },
  {
    args: ["restore", "hello"],
    exitCode: 2,
    stderr: /^svc: missing argument <archive>: an archive as svc backup ls shows it, or /,
  },
  { args: ["kill", "hello"], exitCode: 2, stderr: /not a process ID: .*; to stop an app: svc stop ID$/m },
  { args: ["rm", "-f", "hello"], exitCode: 2, stderr: /^svc: --force .* deletes all data; .* pass --yes$/m },
  { args: ["ps", "-a", "-q"], stdout: /^hello$/m },
  { args: ["rotate"], exitCode: 2, stderr: /\nDid you mean: svc token rotate\n$/ },
  { args: ["enable", "--json"], exitCode: 2, stderr: /Did you mean: svc start ID, or svc schedule enable/ },
  { args: ["-v"], stdout: /^\d+\.\d+\.\d+/ },
  { args: ["down", "-v"], exitCode: 2, stderr: /\nDid you mean: svc stop ID, or svc rm ID\n$/ },
  { args: ["files"], exitCode: 2, stderr: /\nDid you mean: svc file\n$/ },
  { args: ["schedule", "replace", "x"], exitCode: 2, stderr: /--id ID --replace\n$/ },
  { args: ["schedule", "list", "-a"], stderr: /^No jobs yet/ },
  {
    args: ["schedule", "add", "0 3 * * *", "echo hi"],
    exitCode: 2,
    stderr: /: svc schedule add TRIGGER shell --command 'echo hi'\n/,
  },
  {
    args: ["schedule", "add", "0 3 * * *", "echo", "hi", "you"],
    exitCode: 2,
    stderr: /: svc schedule add '0 3 \* \* \*' shell --command 'echo hi you'\n/,
  },
  ...(
    [
      ["restart", "app_restart"],
      ["update", "app_update"],
      ["upgrade", "app_update"],
      ["reboot", "node_reboot"],
      ["verify", "backup_verify"],
      ["exec", "shell"],
      ["bakcup", "backup"],
    ] as const
  ).map(([action, meant]) => ({
    args: ["schedule", "add", "daily", action, "--app", "hello"],
    exitCode: 2,
    stderr: new RegExp(`unknown action "${action}"; choose one of: .*\\nDid you mean: ${meant}\\nTry`),
  })),
  {
    args: ["api", "ListApps"],
    exitCode: 2,
    stderr: /^svc: there is no method "ListApps"; did you mean svc api AppService\.ListApps\?\n$/,
  },
  {
    args: ["api", "AppService.ListAps"],
    exitCode: 2,
    stderr: /; did you mean svc api AppService\.ListApps\?\n$/,
  },
  {
    args: ["api", "nonesuch"],
    exitCode: 2,
    stderr: /^svc: there is no method "nonesuch"; see all with: svc api --list\n$/,
  },
  {
    args: ["daemon", "stop"],
    exitCode: 2,
    stderr:
      /; for the system service: sudo systemctl stop svc|for the system service: sudo systemctl stop svc; /,
  },
  { args: ["daemon", "status"], exitCode: 2, stderr: /for its state: svc status\n/ },
  ...(
    [
      [["stop", "-t", "10", "hello"], "-t; the package sets the time until the app is killed"],
      [["restart", "--time", "10", "hello"], "--time; the package sets the time until"],
      [["restart", "hello", "--service", "web"], "--service; services of an app restart together"],
      [["start", "--now", "hello"], "--now; svc start also starts the app at boot"],
      [
        ["settings", "set", "hello", "port=1", "--restart"],
        "--restart; restart the app afterwards: svc restart ID",
      ],
      [
        ["credential", "add", "x", "y", "--username", "u", "--password-stdin"],
        "--password-stdin; .* --secret-file -",
      ],
      [["start", "-d", "hello"], "-d; apps always run in the background"],
      [["start", "hello", "--service", "web"], "--service; services of an app start together: svc start ID"],
      [["stop", "hello", "--service", "web"], "--service; services of an app stop together: svc stop ID"],
      [["logs", "-u", "hello"], "-u; name the app without an option: svc logs ID"],
      [["rm", "-v", "hello"], "-v; svc rm also removes the volumes of the app"],
      [["install", "-d", "web"], "-d; apps always run in the background; start the app"],
      [["install", "-v", "a:b", "web"], "-v; the package sets the volumes"],
      [["inspect", "-f", "{{.id}}", "hello"], "-f; choose the fields with --format"],
      [["schedule", "add", "--name", "x"], "--name; choose the ID of the job with --id"],
      [["backup", "rm", "x", "--all"], "--all; to delete all archives of an app: svc backup rm ID "],
      [["docker", "stop", "-t", "9", "x"], "-t\\n"],
      [["upgrade", "x", "--to", "v1"], "--to; choose the version with --version TAG"],
      [["events", "--tail", "5"], "--tail; choose the time with --since 10m"],
      [["ls", "-l"], "-l; for all columns: svc ls -o wide"],
      [["stats", "-a"], "-a; stopped apps use neither"],
    ] as const
  ).map(([args, words]) => ({ args, exitCode: 2, stderr: new RegExp(`^svc: unknown option ${words}`) })),
  {
    args: ["add"],
    exitCode: 2,
    stderr: /\nDid you mean: svc schedule add, or svc source add, or svc credential add, or svc node add\n$/,
  },
  {
    args: ["add", "--timeout", "2h"],
    exitCode: 2,
    stderr: /^svc: --timeout must be seconds, more than 0 and at most 86400; got "2h"\nTry: svc --help\n$/,
  },
  {
    args: ["--node", "add", "--nonesuch"],
    exitCode: 2,
    stderr: /^svc: unknown option --nonesuch\nTry: svc --help\n$/,
  },
  { args: ["isntall", "x"], exitCode: 2, stderr: /\nDid you mean: svc install\n$/ },
  {
    args: ["lss"],
    exitCode: 2,
    stderr: /^svc: unknown command "lss"\nDid you mean: svc ls\n$/,
  },
  {
    args: ["help", "lss"],
    exitCode: 2,
    stderr: /^svc: unknown command "lss"\nDid you mean: svc ls\n$/,
  },
  {
    args: ["help", "frobnicate"],
    exitCode: 2,
    stderr: /^svc: unknown command "frobnicate"\nTry: svc --help\n$/,
  },
  { args: ["help", "info"], stdout: /^Usage: svc info\|inspect / },
  {
    args: ["app", "help", "frobnicate"],
    exitCode: 2,
    stderr: /^svc: unknown command "frobnicate"\nTry: svc app --help\n$/,
  },
  { args: ["help", "ls"], stdout: /^Usage: svc ls\|list / },
  { args: ["help", "uninstall"], stdout: /^Usage: svc remove\|rm / },
  { args: ["help", "app", "start"], stdout: /^Usage: svc app start / },
  { args: ["help", "backup", "storage", "add"], stdout: /^Usage: svc backup storage add / },
  {
    args: ["help", "app", "frobnicate"],
    exitCode: 2,
    stderr: /^svc: unknown command "frobnicate"\nTry: svc app --help\n$/,
  },
  {
    args: ["ls", "--nonesuch"],
    exitCode: 2,
    stderr: /^svc: unknown option --nonesuch\nTry: svc ls --help\n$/,
  },
  {
    args: ["backup", "storage", "add"],
    exitCode: 2,
    stderr:
      /^svc: missing argument <name>: name of the storage, as used with --storage\nTry: svc backup storage add --help\n$/,
  },
  { args: ["ls", "--columns", "id,nope"], exitCode: 2, stderr: /"nope"[^\n]*\nTry: svc ls --help\n$/ },
  {
    args: ["app", "place", "hello"],
    exitCode: 2,
    // The message already says what to type.
    stderr: /^svc: choose where to run it: --on swarm, or --on machine\n$/,
  },
  { args: ["ls", "--timeout", "0"], exitCode: 2, stderr: /more than 0 and at most 86400/ },
  { args: ["--version"], stdout: /^1\.2\.3\n$/ },
  {
    args: ["ls", "--socket", ""],
    exitCode: 2,
    stderr: /^svc: --socket must be a path; got ""\nTry: svc ls --help\n$/,
  },
  {
    args: ["--help", "--all"],
    stdout:
      /^Apps:\n {2}ls\|list [^]*\nThis machine:\n[^]*\nThe daemon:\n[^]*\nHelp:\n[^]*\nOptions:\n[^]*\nGlobal options:\n[^]*\nExit codes:[^]* 6 +unavailable: the daemon[^]*130/m,
  },
  {
    args: ["schedule", "--help"],
    stdout: /\nCommands:\n[^]*\nOptions:\n[^]*\nGlobal options, [^]*\n[^]*\nExamples:/,
  },
];

for (const expected of cases) {
  const { args } = expected;
  test(`svc ${args.join(" ")}`, async (t) => {
    await using daemon = await startFakeDaemon(apps);
    const socket = args[0]?.startsWith("--") === true ? [] : ["--socket", daemon.socketPath];
    const run = await runSvc([...args, ...socket]);
    checkRun(t, run, expected);
  });
}

const project = appOf({ id: "shop", runtime: "compose", state: "RUNNING" });

for (const words of [["shop", "worker"], ["shop/worker"]]) {
  test(`svc logs ${words.join(" ")} shows the log of the service`, async (t) => {
    await using daemon = await startFakeDaemon([project]);
    const run = await runSvc(["logs", ...words, "--socket", daemon.socketPath]);
    checkRun(t, run, { args: [], stdout: /\ntwo of worker\n$/ });
  });

  test(`svc restart ${words.join(" ")} says how to restart the app, and restarts nothing`, async (t) => {
    await using daemon = await startFakeDaemon([project]);
    const run = await runSvc(["restart", ...words, "--socket", daemon.socketPath]);
    const stderr =
      /^svc: "worker" is a service of shop; services of an app restart together: svc restart shop\n$/;
    checkRun(t, run, { args: [], exitCode: 2, stdout: /^$/, stderr });
    t.false(daemon.requests.some(({ url }) => url.endsWith("/restart")));
  });
}

test("a second word that is neither an app nor a service is an unknown app", async (t) => {
  await using daemon = await startFakeDaemon([project, appOf({ id: "hello" })]);
  for (const app of ["shop", "hello"]) {
    const run = await runSvc(["logs", app, "wrker", "--socket", daemon.socketPath]);
    checkRun(t, run, { args: [], exitCode: 3, stderr: /^svc: no app "wrker"; / });
  }
});

test("a stop that takes seconds shows that the app is stopping", async (t) => {
  const operation = create(AppOperationSchema, { kind: "stop", phase: "stop" });
  await using daemon = await startFakeDaemon([appOf({ id: "heavy", operation })]);
  const run = await runSvc(["stop", "heavy", "--socket", daemon.socketPath]);
  checkRun(t, run, { args: [], stdout: /^heavy is STOPPED\n$/, stderr: /^stop heavy: Stopping\n$/ });
});

for (const command of ["start", "stop", "restart", "rm", "upgrade"]) {
  test(`svc ${command} --all says that no apps are installed`, async (t) => {
    await using daemon = await startFakeDaemon([]);
    const run = await runSvc([command, "--all", "--socket", daemon.socketPath]);
    checkRun(t, run, { args: [], stdout: /^$/, stderr: /^No apps are installed\.\n$/ });
  });
}

test("svc rm --all asks about every app, and removes them with --yes", async (t) => {
  await using daemon = await startFakeDaemon([appOf({ id: "one" }), appOf({ id: "two" })]);
  const svc = (...args: string[]) => runSvc(["rm", "--all", ...args, "--socket", daemon.socketPath]);
  const stderr = /^svc: this deletes one, two with all data; pass --yes to confirm\n$/;
  checkRun(t, await svc(), { args: [], exitCode: 2, stdout: /^$/, stderr });
  const removed = { stdout: /^Removed one .*\nRemoved two .*\n$/, stderr: /archive of one/ };
  checkRun(t, await svc("--yes"), { args: [], ...removed });
  checkRun(t, await svc("one"), { args: [], exitCode: 2, stderr: /^svc: name the apps, or pass --all\n$/ });
});

test("the last backup of an app and overdue backups are shown", async (t) => {
  const lastBackupAt = timestampFromDate(new Date("2026-01-01T22:00:00Z"));
  const backups = create(AppBackupsSchema, { lastBackupAt, storages: ["local", "far"], overdue: true });
  await using daemon = await startFakeDaemon([appOf({ id: "hello", backups }), appOf({ id: "idle" })]);
  const svc = (...args: string[]) => runSvc([...args, "--socket", daemon.socketPath]);
  t.regex(
    (await svc("app", "info", "hello")).stdout,
    /^Backed up: 2h ago to local, far; never verified; overdue$/m,
  );
  t.notRegex((await svc("app", "info", "idle")).stdout, /Backed up/);
  t.is(
    (await svc("ls")).stderr,
    "warning: backups are overdue of hello; see why: svc backup policy ID; make them: svc backup create hello\n",
  );
});

test("values of settings come from files and stdin, unparsed for text settings", async (t) => {
  await using daemon = await startFakeDaemon(apps);
  const directory = dirname(daemon.socketPath);
  await writeFile(join(directory, "greeting"), "8080\n");
  await writeFile(join(directory, "port"), "9090\n");
  const stdin = Object.assign(new PassThrough().end("a secret\n of two lines\n"), { isTTY: false });
  const files = ["greeting", "port"].flatMap((key) => ["--set-file", `${key}=${join(directory, key)}`]);
  const options = [...files, "--set-stdin", "password", "--json", "--socket", daemon.socketPath];
  const set = await runSvc(["app", "settings", "set", "hello", "channel=b", ...options], { host: { stdin } });
  t.is(set.exitCode, 0, set.stderr);
  const { values } = JSON.parse(set.stdout) as { values: unknown };
  const password = "a secret\n of two lines";
  t.deepEqual(values, { port: 9090, greeting: "8080", channel: "b", password });

  const again = Object.assign(new PassThrough().end("hush\n"), { isTTY: false });
  const install = ["install", "web", "--set", "port=1", "--set-stdin", "password", "--json"];
  const run = await runSvc([...install, "--socket", daemon.socketPath], { host: { stdin: again } });
  t.is(run.exitCode, 0, run.stderr);
  const { name } = JSON.parse(run.stdout) as { name: string };
  const settings = { port: 1, password: "hush" };
  t.deepEqual(JSON.parse(name), { settings, settingTexts: { port: "1", password: "hush" } });

  const missing = await runSvc([
    "install",
    "web",
    "--set-file",
    "a=/nonexistent",
    "--socket",
    daemon.socketPath,
  ]);
  t.like(missing, { exitCode: 2, stderr: "svc: cannot read /nonexistent: no such file or directory\n" });
});

for (const [args, path] of [
  [["status"], "/v1/status"],
  [["app", "info", "hello"], "/v1/apps/hello"],
  [["app", "logs", "hello"], "/v1/apps/hello/logs?tail=100&timestamps=false"],
  [
    ["app", "logs", "hello", "--since", "2026-11-28T02:00+01:00"],
    "/v1/apps/hello/logs?tail=100&timestamps=false&since=2026-11-28T01%3A00%3A00.000Z",
  ],
  [["app", "settings", "hello"], "/v1/apps/hello/settings"],
  [["disk"], "/v1/disk"],
  [["ports"], "/v1/ports"],
  [["stacks"], "/v1/stacks"],
  [["api", "AppService.GetApp", '{"id":"hello"}'], "/v1/apps/hello"],
] as const) {
  test(`svc ${args.join(" ")} --json prints the response of GET ${path}`, async (t) => {
    await using daemon = await startFakeDaemon(apps);
    const { stdout } = await runSvc([...args, "--json", "--socket", daemon.socketPath]);
    const sent = request({ socketPath: daemon.socketPath, path }).end();
    const [answer] = (await nextEvent(sent, "response")) as [IncomingMessage];
    t.is(JSON.stringify(JSON.parse(stdout)), await text(answer));
  });
}

test("an error without a known app suggests no command that needs an ID", (t) => {
  const error = new SvcError("start_failed", 'app "a" did not start: it ended');
  t.is(describeFailure(error).message, error.message);
  t.regex(describeFailure(error, "a").message, /: svc logs a$/);
});

test("--json prints an error in the shape of REST, on stderr", async (t) => {
  await using daemon = await startFakeDaemon(apps);
  const run = await runSvc(["--json", "install", "twice", "--socket", daemon.socketPath]);
  t.is(run.stdout, "");
  t.like(JSON.parse(run.stderr), {
    code: "failed_precondition",
    reason: "ambiguous",
    ambiguous: { candidates: [{ spec: "main/twice" }, { spec: "other/twice" }] },
  });
});

for (const [args, error] of [
  [["lss"], /^unknown command "lss"; Did you mean: svc ls$/],
  [["app", "show"], /^unknown command "show".*; Did you mean: svc info$/],
  [["reload"], /^unknown command "reload"; Did you mean: svc restart ID, or svc daemon reload$/],
  [["help", "frobnicate"], /^unknown command "frobnicate"$/],
  [["app", "start"], /^name the apps, or pass --all$/],
  [["restore"], /^missing argument <id>$/],
  [["app"], /^name a command; see them with --help$/],
  [["ls", "--timeout", "0"], /at most 86400; got "0"$/],
] as const) {
  test(`svc ${args.join(" ")} --json prints the usage error as JSON`, async (t) => {
    const { exitCode, stdout, stderr } = await runSvc([...args, "--json"]);
    const said = JSON.parse(stderr) as { error: string };
    t.like(said, { code: "invalid_argument", reason: "invalid_request" });
    t.regex(said.error, error);
    t.is(exitCode, 2);
    t.is(stdout, "");
  });
}

test("settings are sent with their types, and defaults are not stored", async (t) => {
  await using daemon = await startFakeDaemon(apps);
  const set = ["app", "settings", "set", "hello", "channel=1", "port=1.10", "--socket", daemon.socketPath];
  const { stdout } = await runSvc([...set, "--json"]);
  const { values } = JSON.parse(stdout) as { values: unknown };
  // `port` was its default, and `channel` is a text by its schema.
  t.deepEqual(values, { greeting: "hi", channel: "1", port: 1.1 });
});

test("a removal requires the full ID, although a read accepts a prefix", async (t) => {
  await using daemon = await startFakeDaemon(apps);
  const stdin = Object.assign(new PassThrough(), { isTTY: true });
  stdin.end("y\n");
  const args = ["app", "remove", "hell", "--socket", daemon.socketPath];
  const { exitCode, stderr } = await runSvc(args, { host: { stdin }, terminal: true });
  t.is(exitCode, 3);
  t.regex(stderr, /^\x1b\[31merror:\x1b\[39m no app "hell"/);
});

test("Ctrl-C ends a followed log with 130, and the daemon notices the disconnect", async (t) => {
  await using daemon = await startFakeDaemon(apps);
  const interrupt = new AbortController();
  const stdout = Object.assign(new PassThrough({ encoding: "utf8" }), { isTTY: false });
  const running = runSvc(["app", "logs", "-f", "hello", "--socket", daemon.socketPath], {
    host: { interrupted: interrupt.signal, stdout },
  });
  t.deepEqual(await nextEvent(stdout, "data"), ["first line of hello\n"]);
  interrupt.abort();
  t.like(await running, { exitCode: 130, stderr: "" });
  for (let waited = 0; daemon.left() === 0 && waited < 5000; waited += 10) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  t.is(daemon.left(), 1);
});

test("the process exits with 130 after a signal", async (t) => {
  await using daemon = await startFakeDaemon(apps);
  const child = fork(main, ["app", "logs", "-f", "hello", "--socket", daemon.socketPath], { silent: true });
  await nextEvent(child.stdout!, "data");
  child.kill("SIGINT");
  t.deepEqual(await nextEvent(child, "exit"), [130, null]);
});

test("a removal names adopted data only if there is some", async (t) => {
  const app = appOf({ id: "plain", adopted: create(AppAdoptedDataSchema, {}) });
  await using daemon = await startFakeDaemon([app]);
  const { stdout } = await runSvc(["rm", "plain", "--dry-run", "--socket", daemon.socketPath]);
  t.is(stdout, "Would remove plain and free 2.0 KiB\n");
});

test("a running app without statistics is not reported as stopped", async (t) => {
  await using daemon = await startFakeDaemon([appOf({ id: "uncounted", state: "RUNNING" })]);
  for (const ids of [[], ["uncounted"]]) {
    const { exitCode, stderr } = await runSvc(["stats", ...ids, "--socket", daemon.socketPath]);
    t.deepEqual(
      [exitCode, stderr],
      [0, "This host does not measure the running apps. To see why: svc doctor\n"],
    );
  }
});

const nowMs = Date.UTC(2026, 10, 28, 12);

test("a dry run of an install lists missing settings, ports in use and a missing engine", async (t) => {
  await using daemon = await startFakeDaemon(apps);
  await using dir = await mkdtempDisposable(join(tmpdir(), "svc-needs-"));
  const manifest = `id: need
name: Need
version: "1.0.0"
summary: Needs a token.
docker: { image: "nginx:1.27" }
ports: [{ name: http, setting: port }]
settings:
  required: [token]
  properties:
    port: { type: integer, minimum: 1, maximum: 65535, default: 8080, env: PORT }
    token: { type: string, env: TOKEN }
`;
  await writeFile(join(dir.path, "svc.yaml"), manifest);
  const dryRun = async (...more: string[]) =>
    (await runSvc(["--socket", daemon.socketPath, "install", dir.path, "--dry-run", ...more])).stderr;
  const inUse = 'Port 8080 \\("http"\\) is in use by app "hello":';
  const without = await dryRun();
  t.regex(without, /^Required settings: --set token=VALUE$/m);
  t.regex(without, new RegExp(`^${inUse} an install chooses the next free one\\.$`, "m"));
  t.regex(without, /^It needs a container engine, and none is usable at /m);
  const given = await dryRun("--set", "token=x", "--set", "port=8080");
  t.notRegex(given, /Required settings/);
  t.regex(given, new RegExp(`^${inUse} the app could not start\\.$`, "m"));
});

test("an app at all addresses of this host is shown with an address for other machines", async (t) => {
  const everywhere = appOf({
    ...{ id: "open", state: "RUNNING" },
    ports: [create(AppPortSchema, { name: "http", protocol: "tcp", port: 8080 })],
  });
  await using daemon = await startFakeDaemon([everywhere]);
  const { stdout } = await runSvc(["--socket", daemon.socketPath, "info", "open"]);
  t.regex(stdout, /^Address: +http:\/\/127\.0\.0\.1:8080$/m);
  const outer = Object.values(networkInterfaces())
    .flatMap((addresses = []) => addresses)
    .filter(({ internal, family }) => !internal && family === "IPv4")
    .map(({ address }) => `http://${address}:8080`);
  const shown = /^Also at: +(.*)$/m.exec(stdout)?.[1]?.split(", ") ?? [];
  t.deepEqual(
    shown.filter((url) => !outer.includes(url)),
    [],
  );
  t.is(shown.length > 0, outer.length > 0);
  const started = await runSvc(["--socket", daemon.socketPath, "start", "open"]);
  const addresses = ["http://127.0.0.1:8080", ...shown.slice(0, 1)].join(" and ");
  t.is(started.stdout, `open is RUNNING at ${addresses}\n`);
});

test("a moment is how long ago, or a time", (t) => {
  t.is(parseMoment("10m")(nowMs), nowMs - 600_000);
  t.is(parseMoment("1h30m")(nowMs), nowMs - 5_400_000);
  t.is(parseMoment("2026-11-28T02:00:00.250Z")(nowMs), Date.UTC(2026, 10, 28, 2, 0, 0, 250));
  t.is(parseMoment("2026-11-28 02:00+01:00")(nowMs), Date.UTC(2026, 10, 28, 1));
  t.is(parseMoment("2026-11-28T02:00")(nowMs), new Date(2026, 10, 28, 2).getTime(), "local time");
  t.is(parseMoment("2026-11-28")(nowMs), new Date(2026, 10, 28).getTime(), "local midnight");
  for (const text of ["", "noon", "10", "-10m", "2026-13-01", "2026-11-28T25:00", "1900-01-01", "28.11.2026"])
    t.throws(() => parseMoment(text), { message: /how long ago, such as 10m/ }, text);
});
