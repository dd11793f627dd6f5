package threads

import (
	"context"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

func noRow(what, id string) error {
	return capability.Errorf(capability.CodeNotFound, "threads", "there is no %s %q", what, id).With(ReasonNoRow,
		"the detail of the thread lists them")
}

// job returns a job of the thread, running or ended.
func (w *work) job(id string) (*row.VerifierJob, error) {
	for i := range w.g.Jobs {
		if w.g.Jobs[i].ID == id {
			return &w.g.Jobs[i], nil
		}
	}
	j := row.VerifierJob{ID: id}
	ok, err := w.Get(w.ctx, &j)
	if err == nil && (!ok || j.ThreadID != w.g.Thread.ID) {
		err = noRow("verification", id)
	}
	return &j, err
}

// StartJob stores a running validation and writes the event validation_started. Its node, if it
// has one, is verifying as long as the session works.
func (r *Registry) StartJob(ctx context.Context, j row.VerifierJob) (row.VerifierJob, error) {
	j.ID = row.NewID("job")
	_, err := r.change(ctx, j.ThreadID, func(w *work) error {
		if err := w.belongs("", j.NodeID); err != nil {
			return err
		}
		n, err := w.Count(w.ctx, &j)
		if err != nil {
			return err
		}
		if n >= MaxRows {
			return full(j.Table(), MaxRows)
		}
		j.Status, j.CreatedAt, j.StartedAt = row.JobRunning, w.now, w.now
		w.g.Jobs = append(w.g.Jobs, j)
		w.event(row.ValidationStarted, "", j.Title, jobData{j.ID, j.NodeID})
		return nil
	})
	return j, err
}

type jobData struct {
	Job  string `json:"verifierJobId"`
	Node string `json:"nodeId,omitzero"`
}

// EndJob ends a validation with the status passed, failed or canceled, and writes the
// corresponding event. It fails with wrong_state if the validation has ended.
func (r *Registry) EndJob(ctx context.Context, thread, job string, status row.JobStatus, summary string) (Moved, error) {
	return r.change(ctx, thread, func(w *work) error {
		j, err := w.job(job)
		switch {
		case err != nil:
			return err
		case j.Status.Over() || !status.Over():
			return wrongState("start another one", "the verification %q is %s, and cannot become %s", job, j.Status, status)
		}
		w.endJob(j, status, summary)
		return nil
	})
}

func (w *work) endJob(j *row.VerifierJob, status row.JobStatus, summary string) {
	j.Status, j.CompletedAt = status, w.now
	kind := map[row.JobStatus]string{
		row.JobPassed: row.ValidationPassed, row.JobFailed: row.ValidationFailed,
		row.JobCanceled: row.ValidationCanceled,
	}[status]
	w.event(kind, "", summary, jobData{j.ID, j.NodeID})
}
