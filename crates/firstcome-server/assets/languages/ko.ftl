join-title = 대기열에 들어가려고 합니다
join-lead = 도착한 순서대로 입장합니다.
join-button = 대기열 들어가기
scheduled-title = 아직 열리지 않았습니다
scheduled-lead = 순서는 그대로 유지됩니다. 열리면 순서대로 입장합니다.
draw-title = 아직 추첨 전입니다
draw-lead = 입장이 시작될 때까지 참여한 모든 분의 순서를 추첨으로 정합니다. 그 뒤에 참여하신 분은 그 다음 순서가 됩니다.
drawn-lead = 입장 시작 전에 참여한 분들의 순서를 추첨으로 정했습니다. 이 순서대로 입장합니다.
late-lead = 추첨이 끝났습니다. 지금 참여하시면 도착한 순서대로 뒤에 서게 됩니다.
waiting-title = 대기 중입니다
waiting-lead = 도착한 순서대로 입장합니다.
almost-title = 곧 입장합니다
almost-lead = 다음 차례입니다. 이 화면을 닫지 마세요.
paused-title = 대기열이 잠시 멈췄습니다
paused-lead = 주최 측이 입장을 잠시 멈췄습니다. 순서는 그대로 유지됩니다.
admitted-title = 입장할 차례입니다
admitted-lead = 시간이 끝나기 전에 들어가세요.
admitted-button = 들어가기
full-title = 대기열이 가득 찼습니다
full-lead = 잠시 후 다시 시도해 주세요.
expired-title = 대기 순서가 끝났습니다
expired-lead = 오랫동안 연결이 없었거나 이용 시간이 끝났습니다.
left-title = 대기열에서 나왔습니다
left-lead = 순서는 다음 분께 넘어갔습니다.
over-title = 대기열이 마감되었습니다
over-lead = 주최 측이 대기열을 닫았습니다. 더 이상 입장할 수 없습니다.
lost-title = 연결이 끊겼습니다
lost-lead = 순서는 그대로 유지됩니다. 이 화면이 저절로 다시 연결합니다.
offer-title = 이 기기에서 내 순서 받기
offer-lead = 이 링크는 대기 순서를 이 기기로 한 번만 옮깁니다. 지금 순서를 가진 기기에서는 끝납니다.
offer-button = 순서 받기
moved-title = 순서가 다른 기기로 옮겨졌습니다
moved-lead = 다른 기기가 링크로 순서를 받아 이어 가고 있습니다. 이 페이지와 링크로는 더 이상 그 순서를 쓸 수 없습니다.
cookies-title = 쿠키를 허용해 주세요
cookies-lead = 순서는 쿠키에 저장되는데 브라우저가 저장하지 않았습니다. 이 사이트의 쿠키를 허용한 뒤 다시 들어와 주세요.
rejoin-button = 다시 줄 서기
work-busy = 브라우저가 봇을 늦추는 작은 과제를 풀고 있습니다.
work-wait = 작은 과제로 봇을 늦춥니다. JavaScript가 없으면 { $count }초 기다린 뒤 버튼을 눌러 주세요.
ahead = { $count ->
    [0] 앞에 기다리는 사람이 없습니다
   *[other] 앞에 { $count }명이 기다립니다
}
entrants = { $count ->
   *[other] { $count }명이 추첨에 참여하고 있습니다
}
draw-link = 추첨 확인하기
receipt-link = 확인증 저장
wait-label = 예상 대기 시간
wait-soon = 1분 이내
wait-minutes = { $to ->
    [1] 약 { $to }분
   *[other] { $from }~{ $to }분
}
wait-hours = { $to ->
    [1] 약 { $to }시간
   *[other] { $from }~{ $to }시간
}
wait-unknown = 아직 알 수 없음
number-label = 내 번호
progress-label = 들어온 뒤 진행
opens-label = 열릴 때까지
ends-label = 남은 시간
updated-label = 마지막 갱신
kept = 화면을 새로 고치거나 닫아도 순서는 유지됩니다.
check-button = 지금 확인
auto-button = 저절로 새로 고침
leave-button = 대기열에서 나가기
move-title = 다른 기기에서 이어 가기
move-lead = 다른 기기에서 이 링크를 열고 거기서 순서를 받으세요. 한 번만 쓸 수 있으니 다른 사람에게 보여 주지 마세요.
soldout-title = 모두 소진되었습니다
soldout-lead = 준비한 수량이 모두 나갔습니다.
early-title = 아직 열리지 않았습니다
early-lead = 열리면 받을 수 있습니다. 이 페이지는 저절로 바뀝니다.
claim-title = 지금 받을 수 있습니다
claim-lead = 지금 받으세요. 한 사람에 하나씩입니다.
claim-button = 지금 받기
claimed-title = 받았습니다
claimed-lead = 이 코드를 적어 두세요. 이 브라우저에서는 이 페이지에 다시 표시됩니다.
ended-title = 끝났습니다
ended-lead = 이제 여기에서 받을 수 없습니다.
serial-label = 일련번호
code-label = 코드
remaining = { $count ->
    [0] 남은 수량이 없습니다
   *[other] { $count }개 남음
}
language-label = 언어
