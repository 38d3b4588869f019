import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { TokenService, type IssueAccessTokenResponse } from "../../../../gen/svc/v1/token_pb.ts";
import { useAction } from "../../action.ts";
import { useLive } from "../../live.ts";
import { ConfirmButton } from "../../parts/confirm.tsx";
import { Facts } from "../../parts/facts.tsx";
import { Failure } from "../../parts/failure.tsx";
import { ChoiceField, TextField, typedInto } from "../../parts/field.tsx";
import { When } from "../../parts/when.tsx";
import { accessTexts as says } from "../../texts/access.ts";
import type { ViewProps } from "../../view-props.ts";

/** Access tokens and what is known of them, for whoever came with the primary token. */
export function Tokens({ api, node }: Pick<ViewProps, "api" | "node">) {
  const client = useMemo(() => api.client(TokenService), [api]);
  const status = useLive(node, [], (signal) => client.getTokenStatus({}, { signal }), [client]);
  const label = useSignal("");
  const lifetime = useSignal("600");
  const issued = useSignal<IssueAccessTokenResponse | undefined>(undefined);
  const said = useSignal("");
  const { failure, perform } = useAction();
  const issue = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    await perform("issue", async () => {
      issued.value = await client.issueAccessToken({ label: label.value, ttlSecs: Number(lifetime.value) });
      said.value = "";
    });
    status.again();
  };
  if (status.value === undefined) return <Failure says={status.failure} />;
  const { accessTokens, sessions, primaryDigest, graceUntil } = status.value;
  return (
    <>
      <Facts
        title={says.tokens}
        facts={[
          [says.accessTokens, String(accessTokens)],
          [says.sessions, String(sessions)],
          [says.digest, <code key="digest">{primaryDigest}</code>],
          [says.rotation, graceUntil && <When key="grace" at={graceUntil} />],
        ]}
      >
        <div class="row">
          <ConfirmButton
            title={says.revokeTitle}
            action={says.revoke}
            onConfirm={async () => {
              said.value = says.revoked((await client.revokeAccessTokens({})).revoked);
              issued.value = undefined;
              status.again();
            }}
          >
            <p>{says.revokeLoses}</p>
          </ConfirmButton>
          <span role="status">{said.value}</span>
        </div>
      </Facts>
      <form class="card settings" aria-labelledby="issue" onSubmit={(event) => void issue(event)}>
        <h2 id="issue">{says.issue}</h2>
        <TextField
          label={says.label}
          hint={says.labelHint}
          {...typedInto(label)}
          input={{ maxLength: 128 }}
        />
        <ChoiceField label={says.lifetime} choices={says.lifetimes} {...typedInto(lifetime)} />
        <button type="submit">{says.issueNow}</button>
        <Failure says={failure} />
        {issued.value !== undefined && <Issued of={issued.value} onHide={() => (issued.value = undefined)} />}
      </form>
    </>
  );
}

/** Shown until one hides it or leaves: nobody can ask for it again. */
function Issued({ of: { token, expiresAt }, onHide }: { of: IssueAccessTokenResponse; onHide: () => void }) {
  const said = useSignal("");
  const copy = (): Promise<void> =>
    navigator.clipboard.writeText(token).then(
      () => void (said.value = says.copied),
      () => void (said.value = says.notCopied),
    );
  return (
    <div class="notice" role="status">
      <p>
        {says.once} {says.until} <When at={expiresAt} />.
      </p>
      <pre class="command">{token}</pre>
      <div class="row">
        {/* Over plain HTTP from another host there is none. */}
        {"clipboard" in navigator && (
          <button type="button" onClick={() => void copy()}>
            {says.copy}
          </button>
        )}
        <button type="button" onClick={onHide}>
          {says.hide}
        </button>
        {said.value}
      </div>
    </div>
  );
}
