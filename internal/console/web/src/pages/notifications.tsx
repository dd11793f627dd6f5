import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { remove } from "../api";
import { type Listed, listPath, ownId, switchOff, switchOn, unavailable } from "../notify";
import { Ago, Act, Empty, Show, Tag, Title, useLoad, visible } from "../ui";

export function Notifications() {
  const list = useLoad<Listed>(listPath);
  const own = useSignal("");
  const busy = useSignal(false);
  const wrong = useSignal("");
  const why = useSignal(unavailable());
  const look = async () => {
    own.value = await ownId().catch(() => "");
    why.value = unavailable();
    list.reload();
  };
  useEffect(() => void look(), []);
  const on = own.value !== "" && (list.data?.subscriptions ?? []).some((s) => s.id === own.value);
  const toggle = async () => {
    busy.value = true;
    wrong.value = "";
    try {
      await (on ? switchOff() : switchOn());
    } catch (e) {
      wrong.value = visible((e as Error).message);
    }
    await look();
    busy.value = false;
  };
  return (
    <>
      <Title sub="Also when the console is closed: when an approval waits, when a task of yours asks something, and when it ends or fails.">Notifications</Title>
      <h2>This browser</h2>
      <label class="toggle">
        <input type="checkbox" role="switch" checked={on} disabled={busy.value || list.data === null || (why.value !== "" && !on)} onChange={() => void toggle()} />
        Notify me in this browser
      </label>
      {why.value && <p class="note">{why.value}</p>}
      {wrong.value && !why.value && (
        <p class="note bad" role="alert">
          Notifications are not on. {wrong.value}
        </p>
      )}
      <p class="sub">
        A notification names the agent and the tool, never the input of a call, because a phone shows it while it is locked. It opens the console and decides
        nothing. Signing out in this browser ends it; a session that ends by itself does not.
      </p>
      <h2>Browsers that are notified</h2>
      <Show of={list}>
        {({ subscriptions }) =>
          subscriptions.length === 0 ? (
            <Empty>No browser is notified. Switch it on above, in each browser that you use.</Empty>
          ) : (
            <ul class="list" aria-label="Browsers that are notified">
              {subscriptions.map((s) => (
                <li class="row c-four" key={s.id}>
                  <b class="clip">{visible(s.name)}</b>
                  <span>{s.id === own.value && <Tag is="ok">this browser</Tag>}</span>
                  <Ago at={s.created} />
                  <Act kind="d" do={() => (s.id === own.value ? switchOff() : remove(`${listPath}/${s.id}`)).then(look)}>
                    Remove
                  </Act>
                </li>
              ))}
            </ul>
          )
        }
      </Show>
    </>
  );
}
