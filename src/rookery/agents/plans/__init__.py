"""Operations on plans, phases and tasks."""
