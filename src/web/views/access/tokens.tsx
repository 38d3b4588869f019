import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { TokenService, type IssueAccessTokenResponse } from "../../../../gen/svc/v1/token_pb.ts";
import { useAction } from "../../action.ts";
import { useLive } from "../../live.ts";
import { ConfirmButton } from "../../parts/confirm.tsx";
import { Facts } from "../../parts/facts.tsx";
import { Failure } from "../../parts/failure.tsx";
import { ChoiceField, TextField, bindText } from "../../parts/field.tsx";
import { When } from "../../parts/when.tsx";
import { accessTexts as labels } from "../../texts/access.ts";
import type { ViewProps } from "../../view-props.ts";

/** Access tokens, for callers with the primary token. */
export function Tokens({ api, node }: Pick<ViewProps, "api" | "node">) {
  const client = useMemo(() => api.client(TokenService), [api]);
  const status = useLive(node, [], (signal) => client.getTokenStatus({}, { signal }), [client]);
  const label = useSignal("");
  const lifetime = useSignal("600");
  const issued = useSignal<IssueAccessTokenResponse | undefined>(undefined);
  const notice = useSignal("");
  const { failure, perform } = useAction();
  const issue = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    await perform("issue", async () => {
      issued.value = await client.issueAccessToken({ label: label.value, ttlSecs: Number(lifetime.value) });
      notice.value = "";
    });
    status.reload();
  };
  if (status.value === undefined) return <Failure message={status.failure} />;
  const { accessTokens, sessions, primaryDigest, graceUntil } = status.value;
  return (
    <>
      <Facts
        title={labels.tokens}
        facts={[
          [labels.accessTokens, String(accessTokens)],
          [labels.sessions, String(sessions)],
          [labels.digest, <code key="digest">{primaryDigest}</code>],
          [labels.rotation, graceUntil && <When key="grace" at={graceUntil} />],
        ]}
      >
        <div class="row">
          <ConfirmButton
            title={labels.revokeTitle}
            action={labels.revoke}
            onConfirm={async () => {
              notice.value = labels.revoked((await client.revokeAccessTokens({})).revoked);
              issued.value = undefined;
              status.reload();
            }}
          >
            <p>{labels.revokeLoses}</p>
          </ConfirmButton>
          <span role="status">{notice.value}</span>
        </div>
      </Facts>
      <form class="card settings" aria-labelledby="issue" onSubmit={(event) => void issue(event)}>
        <h2 id="issue">{labels.issue}</h2>
        <TextField
          label={labels.label}
          hint={labels.labelHint}
          {...bindText(label)}
          input={{ maxLength: 128 }}
        />
        <ChoiceField label={labels.lifetime} choices={labels.lifetimes} {...bindText(lifetime)} />
        <button type="submit">{labels.issueNow}</button>
        <Failure message={failure} />
        {issued.value !== undefined && <Issued of={issued.value} onHide={() => (issued.value = undefined)} />}
      </form>
    </>
  );
}

/** Shown until hidden or the view is left; the token cannot be retrieved again. */
function Issued({ of: { token, expiresAt }, onHide }: { of: IssueAccessTokenResponse; onHide: () => void }) {
  const notice = useSignal("");
  const copy = (): Promise<void> =>
    navigator.clipboard.writeText(token).then(
      () => void (notice.value = labels.copied),
      () => void (notice.value = labels.notCopied),
    );
  return (
    <div class="notice" role="status">
      <p>
        {labels.once} {labels.until} <When at={expiresAt} />.
      </p>
      <pre class="command">{token}</pre>
      <div class="row">
        {/* Over plain HTTP from another host there is none. */}
        {"clipboard" in navigator && (
          <button type="button" onClick={() => void copy()}>
            {labels.copy}
          </button>
        )}
        <button type="button" onClick={onHide}>
          {labels.hide}
        </button>
        {notice.value}
      </div>
    </div>
  );
}
