/** `svc token …`: tokens for scripts and platforms that call the daemon over TCP. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import { examples } from "../examples.ts";
import { parseDuration } from "../input/option-values.ts";
import type { RunCommand } from "../run-command.ts";
import { formatDuration } from "../output/units.ts";
import { calls } from "../client/calls.ts";

/** The longest lifetime and the longest grace period, in seconds. */
const maxSecs = 86_400;

export function addTokenCommand(parent: Command, run: RunCommand): void {
  const token = parent.command("token").description("show, issue, revoke and rotate the daemon's tokens");
  token
    .command("status", { isDefault: true })
    .description("show your identity and active tokens, without their secrets (also: svc token)")
    .action(run(showStatus));
  token
    .command("issue")
    .description("print a new access token; it allows everything except managing tokens and rebooting")
    .option(
      "--ttl <time>",
      "lifetime, such as 90s or 10m, at most 24h (default: 10m)",
      parseDuration(1, maxSecs),
    )
    .option("--label <text>", "what it is for, shown in the daemon's log")
    .addHelpText(
      "after",
      "\nOnly the token goes to stdout. Before you send it to a local port, check that the port is root's or yours:\n" +
        "ss -Hltne 'sport = :8420' names no other uid.\n" +
        examples(
          "TOKEN=$(svc token issue)",
          'curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8420/v1/apps',
          "svc token issue --ttl 60 --label 'a script'",
        ),
    )
    .action(run((context, options: IssueOptions) => issue(context, options)));
  token
    .command("revoke")
    .description("revoke all access tokens, and end calls that use them")
    .action(run(revoke));
  token
    .command("rotate")
    .description(
      "print a new primary token; the old one stays valid for --grace; access tokens and sessions end at once",
    )
    .option(
      "--grace <time>",
      "how long the old one works, such as 90s or 10m, at most 24h (default: 5m)",
      parseDuration(0, maxSecs),
    )
    .action(run((context, options: RotateOptions) => rotate(context, options)));
  token
    .command("commit")
    .description("revoke the primary token that a rotation replaced, before its grace period ends")
    .action(run(commit));
}

interface IssueOptions {
  readonly ttl?: number;
  readonly label?: string;
}

interface RotateOptions {
  readonly grace?: number;
}

const kinds: Readonly<Record<string, string>> = {
  peer: "the daemon's own user on this machine, with the primary token's authority",
  primary: "the primary token",
  replaced: "the primary token that a rotation replaced",
};

async function showStatus(context: CommandContext): Promise<void> {
  const status = await context.call(calls.getTokenStatus, {});
  if (context.json) return context.printJson(status);
  const window = status.rotation_open ? `open for ${remaining(context, status.grace_until)}` : "none";
  await context.printFields([
    ["You", kinds[status.kind] ?? status.kind],
    ["Primary token", `SHA-256 ${status.primary_digest}…`],
    ["Access tokens", `${status.access_tokens} live`],
    ["Sessions", `${status.sessions} open`],
    ["Rotation", window, status.rotation_open ? "yellow" : undefined],
  ]);
  if (status.rotation_open) context.note("Revoke the replaced token now: svc token commit");
}

async function issue(context: CommandContext, { ttl, label }: IssueOptions): Promise<void> {
  const grant = await context.call(calls.issueAccessToken, {
    ...(ttl !== undefined && { ttl_secs: ttl }),
    ...(label !== undefined && { label }),
  });
  if (context.json) return context.printJson(grant);
  await context.print(`${grant.token}\n`);
  context.note(`The token is valid for ${remaining(context, grant.expires_at)} and is not shown again.`);
}

async function revoke(context: CommandContext): Promise<void> {
  const answer = await context.call(calls.revokeAccessTokens, {});
  return context.printResult(answer, `Ended ${accessTokens(answer.revoked)}`);
}

async function rotate(context: CommandContext, { grace }: RotateOptions): Promise<void> {
  const rotation = await context.call(calls.rotatePrimaryToken, {
    ...(grace !== undefined && { grace_secs: grace }),
  });
  if (context.json) return context.printJson(rotation);
  await context.print(`${rotation.token}\n`);
  if (rotation.revoked > 0) context.note(`Ended ${accessTokens(rotation.revoked)}.`);
  context.note(
    grace === 0
      ? "The old primary token is no longer valid."
      : `The old primary token is valid for ${remaining(context, rotation.grace_until)}. Revoke it sooner: svc token commit`,
  );
}

async function commit(context: CommandContext): Promise<void> {
  const answer = await context.call(calls.commitPrimaryTokenRotation, {});
  const text = answer.committed ? "The replaced primary token was revoked" : "No rotation is open";
  return context.printResult(answer, text);
}

function accessTokens(count: number): string {
  return count === 1 ? "1 access token" : `${count} access tokens`;
}

/** Time until an RFC 3339 instant, to the nearest second. */
function remaining(context: CommandContext, instant: string | undefined): string {
  if (instant === undefined) return "";
  const leftMs = Date.parse(instant) - context.host.now();
  return formatDuration(Math.round(leftMs / 1000) * 1000);
}
